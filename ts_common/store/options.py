"""How S3 is spoken to, and how objects are stored there: one value for each endpoint.

`option_table` makes it of what a file says. In a cluster's properties file an option stands below
`storage.service.endpoint.s3.`, and holds for all topics; in the file of the provider `json` it stands below `s3` of an
endpoint or a topic.

Readers take the `Connection` of the same file; what is `Storing` means nothing to them.
"""

from dataclasses import dataclass, field, fields
from enum import StrEnum

from ts_common.errors import ConfigurationError
from ts_common.store.checksums import ChecksumAlgorithm

PREFIX = "storage.service.endpoint.s3."


class Encryption(StrEnum):
    """How the server encrypts an object; the values of `x-amz-server-side-encryption`."""

    SSE_S3 = "AES256"
    SSE_KMS = "aws:kms"
    DSSE_KMS = "aws:kms:dsse"


class AddressingStyle(StrEnum):
    """Where a request names its bucket: in the host, in the path, or as the SDK decides."""

    AUTO = "auto"
    PATH = "path"
    VIRTUAL = "virtual"


class Acl(StrEnum):
    """S3's canned ACLs of objects."""

    PRIVATE = "private"
    PUBLIC_READ = "public-read"
    PUBLIC_READ_WRITE = "public-read-write"
    AUTHENTICATED_READ = "authenticated-read"
    AWS_EXEC_READ = "aws-exec-read"
    BUCKET_OWNER_READ = "bucket-owner-read"
    BUCKET_OWNER_FULL_CONTROL = "bucket-owner-full-control"


@dataclass(frozen=True, slots=True)
class Connection:
    """How S3 is spoken to; None leaves it to the environment, as every AWS tool reads it.

    Attributes:
        addressing_style: where a request names its bucket.
        endpoint_url: of the service, http or https.
        region: its name.
        ca_bundle: path of the PEM file of authorities that may have signed the server's certificate.
        tls_verify: whether the server's certificate is looked at.
        client_certificate: path of the PEM file with this side's certificate, and its key where `client_key` is None.
        client_key: path of the PEM file with that key.
        proxy: URL of an HTTP proxy, perhaps with its password; so it is never shown.
        profile: of the AWS configuration files.
        role_arn: the role that is assumed with what the environment or the profile gives.
        external_id: that the role asks for.
        role_session_name: of the sessions, for the account's log.
    """

    addressing_style: AddressingStyle = AddressingStyle.AUTO
    endpoint_url: str | None = None
    region: str | None = None
    ca_bundle: str | None = None
    tls_verify: bool = True
    client_certificate: str | None = None
    client_key: str | None = None
    proxy: str | None = field(default=None, repr=False)
    profile: str | None = None
    role_arn: str | None = None
    external_id: str | None = field(default=None, repr=False)
    role_session_name: str | None = None


@dataclass(frozen=True, slots=True)
class Storing:
    """How objects are stored; None and nothing leave it to the bucket.

    Attributes:
        server_side_encryption: of every object.
        kms_key_id: id or ARN of the KMS key; None means the bucket's, or else the account's.
        bucket_key_enabled: whether S3 asks KMS once for many objects.
        storage_class: of the four objects of a segment.
        tags: of every object, names and values.
        acl: of every object.
        checksum_algorithm: which checksum a put carries.
    """

    server_side_encryption: Encryption | None = None
    kms_key_id: str | None = None
    bucket_key_enabled: bool | None = None
    storage_class: str | None = None
    tags: tuple[tuple[str, str], ...] = ()
    acl: Acl | None = None
    checksum_algorithm: ChecksumAlgorithm = ChecksumAlgorithm.CRC32C

    def only(self, names: tuple[str, ...]) -> "Storing":
        """These fields alone; the others as if nobody had said anything."""
        return Storing(**{name: getattr(self, name) for name in names})

    @property
    def said(self) -> frozenset[str]:
        """The fields that say something."""
        return frozenset(each.name for each in fields(self) if getattr(self, each.name) != each.default)


BY_ENVIRONMENT = Connection()
BY_BUCKET = Storing()


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """Both."""

    connection: Connection = BY_ENVIRONMENT
    storing: Storing = BY_BUCKET


NO_OPTIONS = StorageOptions()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where and how objects are stored.

    Attributes:
        location: the store URL, base prefix included.
        options: of S3.
    """

    location: str
    options: StorageOptions = NO_OPTIONS


def refuse_for_others(location: object, options: StorageOptions) -> None:
    """No other store has a use for any of them, so whoever gave one expects something that would not happen.

    Raises:
        ConfigurationError: some option says something.
    """
    if options != NO_OPTIONS:
        raise ConfigurationError(str(location), [f"is not of S3, and {PREFIX}* is for S3: drop them"])
