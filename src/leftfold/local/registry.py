"""The schema registry as a local process: Apicurio, which keeps its ids in an H2 file.

A lost schema id makes the log undecodable, so an id is on its way to disk before a client ever sees it.
"""

from __future__ import annotations

import http.client
import shutil
import tarfile
import tempfile
from pathlib import Path

from leftfold import class_archive, jars
from leftfold.local import java
from leftfold.local.endpoints import HOST
from leftfold.local.service import PROBE_S, Service

HEAP = "-Xmx384m"  # it idles at about 150 MB


def service(state: Path, *, port: int, java_path: str) -> Service:
    home = unpacked()
    runner = next(home.glob("*-runner.jar"))
    archived = class_archive.flags(jars.cache_home(), home)
    return Service(
        name="registry",
        argv=(java_path, HEAP, *archived, *java.BRIEF, *java.FLAGS, "-jar", str(runner)),
        directory=state / "registry",
        log=state / "logs" / "registry.log",
        port=port,
        environment={
            "QUARKUS_HTTP_HOST": HOST,
            "QUARKUS_HTTP_PORT": str(port),
            "QUARKUS_BANNER_ENABLED": "false",
            "QUARKUS_HTTP_ACCESS_LOG_ENABLED": "false",
            "APICURIO_STORAGE_KIND": "sql",
            "APICURIO_STORAGE_SQL_KIND": "h2",
            # The path is relative, so that no project path can break the URL. Without WRITE_DELAY=0, H2 keeps a commit
            # in memory for half a second, and a kill loses an id that a producer has already written into the log.
            "APICURIO_DATASOURCE_URL": "jdbc:h2:file:./registry;WRITE_DELAY=0",
        },
    )


def unpacked() -> Path:
    """The directory of the registry's files, unpacked once per user. Two processes may unpack at once; one wins."""
    (archive,) = jars.paths("registry")
    home = archive.parent / "unpacked"
    if not home.is_dir():
        temporary = Path(tempfile.mkdtemp(dir=archive.parent, prefix="unpack-"))
        with tarfile.open(archive) as tar:
            tar.extractall(temporary, filter="data")
        try:
            temporary.rename(home)
        except OSError:  # the other process was first, and a full directory is never replaced
            shutil.rmtree(temporary)
    return home


def answers(port: int) -> bool:
    """Return whether the registry's API answers. It does so only once its storage is open."""
    link = http.client.HTTPConnection(HOST, port, timeout=PROBE_S)
    try:
        link.request("GET", "/apis/ccompat/v7/subjects")
        return link.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        link.close()
