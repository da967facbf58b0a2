"""A real HDFS in one process: a NameNode and a DataNode, by Hadoop's own MiniDFSCluster.

HdfsServer              a Server (start, stop, kill, pause, resume, restart) and
  address               "127.0.0.1:<port>", where the NameNode speaks WebHDFS
  make_directory(path, mode)   as the superuser
  environment()         HADOOP_USER_NAME, who is not the superuser

`python -m ts_local.hdfs` fetches the jars, so that a later start needs no network.
"""

import http.client
import sys
from pathlib import Path
from urllib.parse import urlencode

from ts_local.jars import BuildFailedError, ToolMissingError, hadoop_jars, java
from ts_local.jvm import FAST_START, temporary_files_in
from ts_local.ports import LOOPBACK, free_port
from ts_local.process import Server

USER = "tests"
_SUPERUSER = "admin"
_ANSWER_SECONDS = 5.0


class HdfsServer(Server):
    """HDFS on free ports.

    Args:
        directory: for its data.
        logs: directory of its log.
    """

    # Some ten seconds of work, on a machine that may be ten times slower.
    start_seconds = 240.0
    stop_seconds = 1.0

    def __init__(self, directory: Path, logs: Path) -> None:
        super().__init__("hdfs", directory, logs / "hdfs.log")
        self.port = free_port()
        self.address = f"{LOOPBACK}:{self.port}"

    def command(self) -> list[str]:
        """`MiniDFSClusterManager`, which Hadoop's own tests use; other ports are of the system's choice."""
        data = self.directory / "data"
        return [
            *(java(), "-Xmx256m", *FAST_START, *temporary_files_in(self.directory)),
            *(f"-Dtest.build.data={data}", "-cp", f"{hadoop_jars()}/*"),
            *("org.apache.hadoop.test.MiniDFSClusterManager", "-format", "-datanodes", "1"),
            *("-httpport", str(self.port), f"-Dhdfs.minidfs.basedir={data}"),
        ]

    def variables(self) -> dict[str, str]:
        """Whoever starts it is the superuser, and needs a name for that."""
        return {"HADOOP_USER_NAME": _SUPERUSER}

    def not_ready(self) -> str | None:
        """Make a directory and request the place of a file, which a NameNode without a DataNode rejects."""
        try:
            self.make_directory("/ready", "755")
            self._ask("PUT", "/ready/file", "CREATE", noredirect="true")
        except (OSError, http.client.HTTPException, RuntimeError) as error:
            return f"{self.address}: {error}"
        return None

    def make_directory(self, path: str, mode: str) -> None:
        """Make a directory, as the superuser, with these rights for others.

        Raises:
            RuntimeError: it was not made.
        """
        self._ask("PUT", path, "MKDIRS")
        self._ask("PUT", path, "SETPERMISSION", permission=mode)

    def environment(self) -> dict[str, str]:
        """What makes the driver ask as nobody in particular."""
        return {"HADOOP_USER_NAME": USER, "NO_PROXY": LOOPBACK, "no_proxy": LOOPBACK}

    def _ask(self, method: str, path: str, operation: str, **query: str) -> None:
        said = urlencode({"op": operation, "user.name": _SUPERUSER, **query})
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=_ANSWER_SECONDS)
        try:
            connection.request(method, f"/webhdfs/v1{path}?{said}")
            answer = connection.getresponse()
            if answer.status != http.client.OK:
                raise RuntimeError(f"{operation} {path}: {answer.status}: {answer.read(300)!r}")
        finally:
            connection.close()


def main() -> int:
    """Fetch the jars, saying where they are."""
    try:
        print(f"HDFS: {hadoop_jars()}")
    except (ToolMissingError, BuildFailedError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
