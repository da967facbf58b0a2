"""`ts-uploader check`, run as a command."""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dev.local.agent import write_config
from dev.local.forks import run
from dev.local.kafka.cluster import LocalCluster
from tests.uploader.beside import BUCKET

URL = "storage.service.endpoint.url"


CHECKOUT = Path(__file__).parents[2]


_SECONDS = 120


class Check:
    """`ts-uploader check`, once to its end."""

    def __init__(self, cluster: LocalCluster, directory: Path) -> None:
        assert cluster.s3 is not None
        self.s3 = cluster.s3
        self.broker = cluster.brokers[1].server_properties
        self.directory = directory
        self.config = directory / "conf"
        self.location = f"s3://{BUCKET}/{directory.name}"

    def run(
        self, properties: Mapping[str, str], *arguments: str, environment: Mapping[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """Run it with this configuration."""
        write_config(self.config, "prod", properties)
        command = ["ts-uploader", "check", str(self.config), "--cluster-id", "prod"]
        if "--server-properties" not in arguments:
            command += ["--server-properties", str(self.broker)]
        ended = run(
            [*command, *arguments],
            env={**os.environ, **self.s3.environment(), **(environment or {})},
            cwd=CHECKOUT,
            timeout=_SECONDS,
        )
        assert "Traceback" not in ended.stdout + ended.stderr
        return ended

    def findings(self, properties: Mapping[str, str], *arguments: str) -> tuple[int, list[dict[str, Any]]]:
        """What it finds, by way of --json, and its exit code."""
        ended = self.run(properties, "--json", *arguments)
        told = json.loads(ended.stdout)
        assert told["exit"] == ended.returncode
        return ended.returncode, told["findings"]

    def broker_file(self, **changed: str) -> Path:
        """The broker's own file with other values."""
        path = self.directory / "server.properties"
        lines = "".join(f"{key.replace('__', '.')}={value}\n" for key, value in changed.items())
        path.write_text(self.broker.read_text() + "\n" + lines)
        return path
