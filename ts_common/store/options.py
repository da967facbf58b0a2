"""How the S3 driver connects, and how it stores objects: one value for each endpoint.

`option_table` reads it from a file. In a cluster's properties file the options are below `storage.service.endpoint.s3.`
and apply to all topics. In the file of the provider `json` they are below `s3` of an endpoint or a topic.

Readers use only the `Connection` of that file.
"""

from dataclasses import dataclass, field, fields
from enum import StrEnum

from ts_common.errors import ConfigurationError
from ts_common.store.checksums import ChecksumAlgorithm

PREFIX = "storage.service.endpoint.s3."


class Encryption(StrEnum):
    """Server-side encryption of an object: the values of `x-amz-server-side-encryption`."""

    SSE_S3 = "AES256"
    SSE_KMS = "aws:kms"
    DSSE_KMS = "aws:kms:dsse"


class AddressingStyle(StrEnum):
    """Where a request has the bucket: in the host, in the path, or as the SDK decides."""

    AUTO = "auto"
    PATH = "path"
    VIRTUAL = "virtual"


class LockMode(StrEnum):
    """Modes of S3's Object Lock: the values of `x-amz-object-lock-mode`."""

    GOVERNANCE = "GOVERNANCE"
    COMPLIANCE = "COMPLIANCE"


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
class Credentials:
    """Keys of S3 that a program passes itself; no file contains them, and no message shows them.

    Attributes:
        session_token: of temporary keys.
    """

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Connection:
    """How the driver connects to S3. With None the SDK reads the setting from the environment, like every AWS tool.

    Attributes:
        addressing_style: where a request has the bucket.
        endpoint_url: of the service, http or https.
        region: name of the region.
        ca_bundle: path of the PEM file with the authorities that may sign the server's certificate.
        tls_verify: whether the driver checks the server's certificate.
        client_certificate: path of the PEM file with the client's certificate, and its key unless `client_key` is set.
        client_key: path of the PEM file with that key.
        proxy: URL of an HTTP proxy; it may contain a password, so no message shows it.
        profile: of the AWS configuration files.
        role_arn: the role that the driver assumes with the credentials of the environment or the profile.
        external_id: the external id that the role's trust policy requires.
        role_session_name: name of the sessions, for the account's audit log.
        credentials: keys that a program passes; None for those of the profile or the environment.
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
    credentials: Credentials | None = None


@dataclass(frozen=True, slots=True)
class Storing:
    """How the driver stores objects. With None or an empty value, the bucket's setting applies.

    Attributes:
        server_side_encryption: of every object.
        kms_key_id: id or ARN of the KMS key; None means the bucket's, or else the account's.
        bucket_key_enabled: whether S3 sends KMS one request for many objects.
        storage_class: of archived objects: the four of a segment, and gap records.
        tags: of every object, names and values.
        acl: of every object.
        checksum_algorithm: of the checksum of each put.
        object_lock_mode: of the retention of archived objects; None with `object_lock_days` means governance.
        object_lock_days: how long each archived object is retained, from its put by the store's clock; None for none.
    """

    server_side_encryption: Encryption | None = None
    kms_key_id: str | None = None
    bucket_key_enabled: bool | None = None
    storage_class: str | None = None
    tags: tuple[tuple[str, str], ...] = ()
    acl: Acl | None = None
    checksum_algorithm: ChecksumAlgorithm = ChecksumAlgorithm.CRC32C
    object_lock_mode: LockMode | None = None
    object_lock_days: float | None = None

    def only(self, names: tuple[str, ...]) -> "Storing":
        """Return these fields alone; the others have their defaults."""
        return Storing(**{name: getattr(self, name) for name in names})

    @property
    def changed(self) -> frozenset[str]:
        """Names of the fields that differ from their defaults."""
        return frozenset(each.name for each in fields(self) if getattr(self, each.name) != each.default)


BY_ENVIRONMENT = Connection()
BY_BUCKET = Storing()


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """Options of an endpoint: of its connection and of its objects."""

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


def option_name(attribute: str) -> str:
    """Return the name in files of an attribute of `Connection` or `Storing`: `ca.bundle` for `ca_bundle`."""
    return attribute.replace("_", ".")


def option_key(attribute: str) -> str:
    """Return the key in a properties file of an attribute of `Connection` or `Storing`."""
    return PREFIX + option_name(attribute)


def refuse_for_others(location: object, options: StorageOptions) -> None:
    """Reject S3 options for any other store, where they would have no effect.

    Raises:
        ConfigurationError: some option is set.
    """
    if options != NO_OPTIONS:
        raise ConfigurationError(str(location), [f"{PREFIX}* applies only to S3, and this store is not S3: drop them"])
