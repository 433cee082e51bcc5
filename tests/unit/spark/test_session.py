"""Settings on their way to the JVM. That none is on a command line: tests/engine/test_secured.py."""

from __future__ import annotations

from leftfold.settings import Spark
from leftfold.spark.session import _escaped, java_options

LIMIT = "-Dorg.apache.avro.limits.string.maxLength"


def test_a_profile_adds_java_options_and_lifts_no_limit() -> None:
    own = f"-Xss4m {LIMIT}=2000000000"
    conf: dict[str, str | int | float | bool] = {
        "spark.driver.extraJavaOptions": own,
        "spark.executor.extraJavaOptions": "-XX:+UseZGC",
    }
    made = java_options(Spark(conf=conf), "-Dlog=here")
    driver, executor = (made[f"spark.{who}.extraJavaOptions"].split() for who in ("driver", "executor"))
    assert [o for o in driver if o.startswith(LIMIT)][-1] == f"{LIMIT}=1048588"  # Java takes the last one
    assert [o for o in driver if o.startswith("-Xss")][-1] == "-Xss4m"
    assert "-Dlog=here" in driver
    assert "-XX:+UseZGC" in executor
    assert [o for o in executor if o.startswith(LIMIT)] == [f"{LIMIT}=1048588"]


def test_as_javas_properties_are_read() -> None:
    assert _escaped("a=b: #!\\\n\tç") == r"a\=b\:\ \#\!" + "\\\\" + r"\n\tç"
