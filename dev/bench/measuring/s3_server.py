"""An S3 server for one benchmark."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dev.local.stores.s3 import S3Server


@contextmanager
def s3_server(name: str, bucket: str) -> Iterator[tuple[S3Server, Path]]:
    """Run a server with one bucket, and yield it with a directory below `build/` that is deleted at the end.

    The environment of this process, and of those that it starts, names the server from then on.

    Args:
        name: of the benchmark, for the directory.
        bucket: to create.
    """
    build = Path(__file__).parents[3] / "build"
    build.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix=f"bench-{name}.", dir=build) as directory,
        S3Server(Path(directory), Path(directory)) as server,
    ):
        server.create_bucket(bucket)
        os.environ.update(server.environment())
        yield server, Path(directory)
