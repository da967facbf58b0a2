"""AWS services in one process that SeaweedFS does not have: KMS, STS, storage classes, ACLs. It is moto's server.

It accepts any credentials, keeps everything in memory and compares no checksum. It returns what it stored. It checks a
condition and writes in two steps, so two writers at once can both succeed.

MotoServer              a Server (start, stop, kill, pause, resume, restart) and
  endpoint              "http://127.0.0.1:<port>"
  client(service)       a boto3 client of any service; the caller closes it
  environment()         AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_DEFAULT_REGION
"""

import sys
from http import HTTPStatus
from pathlib import Path
from typing import Any

import boto3

from dev.local.loopback_http import ERRORS, request
from dev.local.ports import LOOPBACK, free_port
from dev.local.process import Server

REGION = "us-east-1"


class MotoServer(Server):
    """moto's server on a free port.

    Args:
        directory: its working directory; it writes nothing there.
        logs: directory of its log.
    """

    stop_seconds = 2.0

    def __init__(self, directory: Path, logs: Path) -> None:
        super().__init__("moto", directory, logs / "moto.log")
        self.port = free_port()
        self.endpoint = f"http://{LOOPBACK}:{self.port}"

    def command(self) -> list[str]:
        """Return the command of `moto_server` in this process's virtual environment."""
        return [sys.executable, "-m", "moto.server", "-H", LOOPBACK, "-p", str(self.port)]

    def not_ready(self) -> str | None:
        """Request its page of data."""
        try:
            status, _ = request(self.port, "/moto-api/data.json")
        except ERRORS as error:
            return f"{self.endpoint}: {error}"
        return None if status == HTTPStatus.OK else f"{self.endpoint} returned {status}"

    def client(self, service: str = "s3") -> Any:
        """Return a boto3 client; it is untyped, because the stubs have only S3."""
        return boto3.client(
            service,  # type: ignore[call-overload]
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id="local-moto",
            aws_secret_access_key="local-moto-secret",
        )

    def environment(self) -> dict[str, str]:
        """Return the variables for AWS clients."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_SESSION_TOKEN": "",
            "NO_PROXY": LOOPBACK,
            "no_proxy": LOOPBACK,
            "AWS_ACCESS_KEY_ID": "local-moto",
            "AWS_SECRET_ACCESS_KEY": "local-moto-secret",
            "AWS_DEFAULT_REGION": REGION,
        }
