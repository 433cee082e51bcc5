"""quixstreams: an application of one dataframe. Exactly once, it writes to a topic."""

from quixstreams import Application
from work import BOOTSTRAP, COPIES, GROUP, SESSION_MS, TOPIC, handle

app = Application(
    BOOTSTRAP,
    consumer_group=GROUP,
    auto_offset_reset="earliest",
    commit_interval=1.0,
    processing_guarantee="exactly-once" if COPIES else "at-least-once",
    consumer_extra_config={"session.timeout.ms": SESSION_MS},
    auto_create_topics=False,
    loglevel="WARNING",
)
sdf = app.dataframe(app.topic(TOPIC, value_deserializer="bytes", key_deserializer="bytes"))
sdf = sdf.update(handle)
if COPIES:
    sdf = sdf.to_topic(app.topic(COPIES, value_serializer="bytes", key_serializer="bytes"))
app.run()
