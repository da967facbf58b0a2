"""An AWS in one process, for what SeaweedFS does not know: KMS, STS, storage classes, ACLs. It is moto's server.

It believes any credentials, keeps everything in memory, and looks at conditions and writes in two steps, so that two
writers at once can both pass; it compares no checksum. What it stores it says when it is asked.

MotoServer              a Server (start, stop, kill, pause, resume, restart) and
  endpoint              "http://127.0.0.1:<port>"
  client(service)       a boto3 client of it, of any service; the caller closes it
  environment()         AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_DEFAULT_REGION
"""

import http.client
import sys
from pathlib import Path
from typing import Any

import boto3

from ts_local.ports import LOOPBACK, free_port
from ts_local.process import Server

REGION = "us-east-1"
_ANSWER_SECONDS = 5.0


class MotoServer(Server):
    """moto's server on a free port.

    Args:
        directory: it runs there; it writes nothing.
        logs: directory of its log.
    """

    stop_seconds = 2.0

    def __init__(self, directory: Path, logs: Path) -> None:
        super().__init__("moto", directory, logs / "moto.log")
        self.port = free_port()
        self.endpoint = f"http://{LOOPBACK}:{self.port}"

    def command(self) -> list[str]:
        """`moto_server`, from the environment that runs us."""
        return [sys.executable, "-m", "moto.server", "-H", LOOPBACK, "-p", str(self.port)]

    def not_ready(self) -> str | None:
        """Asks its own page of health."""
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=_ANSWER_SECONDS)
        try:
            connection.request("GET", "/moto-api/data.json")
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException) as error:
            return f"{self.endpoint}: {error}"
        finally:
            connection.close()
        return None if status == http.client.OK else f"{self.endpoint} answers {status}"

    def client(self, service: str = "s3") -> Any:
        """A boto3 client; the stubs know S3 only, so it is untyped."""
        return boto3.client(
            service,  # type: ignore[call-overload]
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id="local-moto",
            aws_secret_access_key="local-moto-secret",
        )

    def environment(self) -> dict[str, str]:
        """What makes any AWS client use this server, as environment variables."""
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
