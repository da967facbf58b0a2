"""A real HDFS in one process: a NameNode and a DataNode, by Hadoop's own MiniDFSCluster.

HdfsServer              a Server (start, stop, kill, pause, resume, restart) and
  address               "127.0.0.1:<port>" of the NameNode's WebHDFS
  make_directory(path, mode)   as the superuser
  environment()         HADOOP_USER_NAME, a user who is not the superuser

`python -m dev.local.stores.hdfs` fetches the jars, so that a later start needs no network.
"""

import sys
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlencode

from dev.local.jars import hadoop_jars, print_fetched
from dev.local.jdk import program
from dev.local.jvm import FAST_START, named_host, temporary_files_in
from dev.local.loopback_http import ERRORS, request
from dev.local.ports import LOOPBACK, free_port
from dev.local.process import Server

USER = "tests"
_SUPERUSER = "admin"


class HdfsServer(Server):
    """HDFS on free ports.

    Args:
        logs: directory of its log.
    """

    # It needs about ten seconds, on a machine that may be ten times slower.
    start_seconds = 240.0
    stop_seconds = 1.0

    def __init__(self, directory: Path, logs: Path) -> None:
        super().__init__("hdfs", directory, logs / "hdfs.log")
        self.port = free_port()
        self.address = f"{LOOPBACK}:{self.port}"

    def command(self) -> list[str]:
        """Return the command of Hadoop's `MiniDFSClusterManager`; the system chooses the other ports."""
        data = self.directory / "data"
        return [
            *(program("java"), "-Xmx256m", *FAST_START, *named_host(), *temporary_files_in(self.directory)),
            *(f"-Dtest.build.data={data}", "-cp", f"{hadoop_jars()}/*"),
            *("org.apache.hadoop.test.MiniDFSClusterManager", "-format", "-datanodes", "1"),
            *("-httpport", str(self.port), f"-Dhdfs.minidfs.basedir={data}"),
        ]

    def variables(self) -> dict[str, str]:
        """Name the superuser: it is the user who starts the server."""
        return {"HADOOP_USER_NAME": _SUPERUSER}

    def not_ready(self) -> str | None:
        """Make a directory and request the place of a file, which a NameNode without a DataNode rejects."""
        try:
            self.make_directory("/ready", "755")
            self._ask("PUT", "/ready/file", "CREATE", noredirect="true")
        except (*ERRORS, RuntimeError) as error:
            return f"{self.address}: {error}"
        return None

    def make_directory(self, path: str, mode: str) -> None:
        """Make a directory as the superuser, with these rights for others.

        Raises:
            RuntimeError: it was not made.
        """
        self._ask("PUT", path, "MKDIRS")
        self._ask("PUT", path, "SETPERMISSION", permission=mode)

    def environment(self) -> dict[str, str]:
        """Return the variables for the driver, of an ordinary user."""
        return {"HADOOP_USER_NAME": USER, "NO_PROXY": LOOPBACK, "no_proxy": LOOPBACK}

    def _ask(self, method: str, path: str, operation: str, **query: str) -> None:
        parameters = urlencode({"op": operation, "user.name": _SUPERUSER, **query})
        status, body = request(self.port, f"/webhdfs/v1{path}?{parameters}", method=method)
        if status != HTTPStatus.OK:
            raise RuntimeError(f"{operation} {path}: {status}: {body[:300]!r}")


def main() -> int:
    """Fetch the jars and print their directory."""
    return print_fetched(("HDFS", hadoop_jars))


if __name__ == "__main__":
    sys.exit(main())
