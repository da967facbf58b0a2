"""`ts-uploader` run as a command, until it ends."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from dev.local.agent import write_config
from dev.local.forks import run
from dev.local.kafka.cluster import LocalCluster
from tests.uploader.beside import BUCKET
from ts_common.archive.object_keys import PROBE_NAME
from ts_uploader.cli import EXIT_REFUSED

CHECKOUT = Path(__file__).parents[2]


class Command:
    """`ts-uploader run`, once to its end."""

    def __init__(self, cluster: LocalCluster, directory: Path) -> None:
        assert cluster.s3 is not None
        self.cluster = cluster
        self.s3 = cluster.s3
        self.config = directory / "conf"
        self.config.mkdir()
        self.location = f"s3://{BUCKET}/{directory.name}"

    def run(
        self,
        properties: Mapping[str, str] | None,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        server_properties: Path | None = None,
        forgotten: str | None = None,
    ) -> "subprocess.CompletedProcess[str]":
        """Run it with this configuration, without a forgotten option; None writes no file."""
        if properties is not None:
            write_config(self.config, "prod", properties)
        broker = server_properties or self.cluster.brokers[1].server_properties
        options = {"--cluster-id": "prod", "--http-address": "127.0.0.1:0", "--server-properties": str(broker)}
        given = [word for name, value in options.items() if name != forgotten for word in (name, value)]
        return run(
            ["ts-uploader", "run", str(self.config), *given, *arguments],
            env={**os.environ, **self.s3.environment(), **(environment or {})},
            cwd=CHECKOUT,
            timeout=60,
        )

    def refuses(self, ended: "subprocess.CompletedProcess[str]", *expected: str, code: int = EXIT_REFUSED) -> None:
        """It ended with a message that names all this, and wrote nothing but perhaps the probe."""
        assert ended.returncode == code, ended.stderr
        assert "Traceback" not in ended.stderr
        for text in expected:
            assert text in ended.stderr
        prefix = self.location.rpartition("/")[2] + "/"
        listed = self.s3.client().list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])
        assert {each["Key"] for each in listed} <= {prefix + PROBE_NAME}
