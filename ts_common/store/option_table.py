"""The options of S3 as files name them: described once, for reading, refusing and the reference page."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from ts_common.store.checksums import ChecksumAlgorithm
from ts_common.store.options import (
    PREFIX,
    Acl,
    AddressingStyle,
    Connection,
    Encryption,
    StorageOptions,
    Storing,
)
from ts_common.suggestions import nearest

# Objects there must be restored before they can be read, which takes minutes to days.
_ARCHIVES = {"GLACIER", "DEEP_ARCHIVE"}
_TAG_TEXT = re.compile(r"[\w \-+=.:/@]*")  # S3's rule; letters and digits of any script
_MOST_TAGS, _TAG_NAME, _TAG_VALUE = 10, 128, 256
_ROLE = re.compile(r"arn:[\w-]+:iam::\d{12}:role/[\w+=,.@/-]+", re.ASCII)
_EXTERNAL_ID = re.compile(r"[\w+=,.@:/-]{2,1224}", re.ASCII)
_SESSION_NAME = re.compile(r"[\w+=,.@-]{2,64}", re.ASCII)


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("a text is expected, and not an empty one")
    return value.strip()


def _one_of(kind: type[StrEnum]) -> Callable[[object], StrEnum]:
    def read(value: object) -> StrEnum:
        for member in kind:
            if str(value).strip().lower() == member.value.lower():
                return member
        raise ValueError(f"accepted are {', '.join(kind)}")

    return read


def _boolean(value: object) -> bool:
    match str(value).strip().lower():
        case "true":
            return True
        case "false":
            return False
    raise ValueError("accepted are true and false")


def _verify(value: object) -> bool:
    match str(value).strip().lower():
        case "true":
            return True
        case "insecure":
            return False
    raise ValueError(
        "accepted are true and insecure; insecure takes any server for the right one, and hands it the records: "
        "ca.bundle is how a certificate of your own authority is believed"
    )


def _storage_class(value: object) -> str:
    text = _text(value)
    if text.upper() in _ARCHIVES:
        raise ValueError(
            "objects of an archive class cannot be read until they are restored, so nobody could read the history; "
            "GLACIER_IR and INTELLIGENT_TIERING can be read at once, and a lifecycle rule can move what is old enough"
        )
    if not re.fullmatch(r"[\w-]+", text, re.ASCII):
        raise ValueError("a storage class is one word, as in STANDARD_IA")
    return text


def _tags(value: object) -> tuple[tuple[str, str], ...]:
    if isinstance(value, str):
        pairs = [pair.strip().partition("=") for pair in value.split(",") if pair.strip()]
        if not all(equals for _, equals, _ in pairs):
            raise ValueError("tags are written name=value,name=value")
        named = [(name.strip(), text.strip()) for name, _, text in pairs]
    elif isinstance(value, dict) and all(isinstance(text, str) for text in value.values()):
        named = list(value.items())
    else:
        raise ValueError('tags are written name=value,name=value; in JSON {"name": "value"}')
    if len(named) > _MOST_TAGS or len(dict(named)) != len(named):
        raise ValueError(f"S3 takes at most {_MOST_TAGS} tags, and each name once")
    for name, text in named:
        if not 0 < len(name) <= _TAG_NAME or len(text) > _TAG_VALUE or name.startswith("aws:"):
            raise ValueError(f"tag {name!r}: a name has 1 to {_TAG_NAME} characters and does not begin with aws:, "
                             f"a value has at most {_TAG_VALUE}")  # fmt: skip
        if not (_TAG_TEXT.fullmatch(name) and _TAG_TEXT.fullmatch(text)):
            raise ValueError(f"tag {name!r}: S3 takes letters, digits, spaces and + - = . _ : / @")
    return tuple(sorted(named))


def _url(value: object) -> str:
    text = _text(value)
    if not re.fullmatch(r"https?://[^/\s@]+/?", text):
        raise ValueError("it is http:// or https:// with a host, perhaps a port, and nothing more")
    return text.rstrip("/")


def _proxy(value: object) -> str:
    text = _text(value)
    if not re.fullmatch(r"https?://\S+", text):
        raise ValueError("it begins with http:// or https://, as in http://proxy:3128")
    return text


def _role(value: object) -> str:
    text = _text(value)
    if not _ROLE.fullmatch(text):
        raise ValueError("it is of the form arn:aws:iam::123456789012:role/name")
    return text


def _external_id(value: object) -> str:
    text = _text(value)
    if not _EXTERNAL_ID.fullmatch(text):
        raise ValueError("it has 2 to 1224 letters, digits and + = , . @ : / _ -")
    return text


def _session_name(value: object) -> str:
    text = _text(value)
    if not _SESSION_NAME.fullmatch(text):
        raise ValueError("it has 2 to 64 letters, digits and + = , . @ _ -")
    return text


@dataclass(frozen=True, slots=True)
class Option:
    """One option, as files name it.

    Attributes:
        name: below `PREFIX`, or below `s3`.
        attribute: of `Connection` or of `Storing`.
        read: makes the value of what a file says, or raises ValueError with what is accepted.
        doc: the reference page's text.
        secret: its value is shown nowhere.
    """

    name: str
    attribute: str
    read: Callable[[object], Any]
    doc: str
    secret: bool = False


OPTIONS = (
    Option(
        "server.side.encryption",
        "server_side_encryption",
        _one_of(Encryption),
        "Encryption of every object: AES256 (SSE-S3), aws:kms (SSE-KMS) or aws:kms:dsse. Default: the bucket's.",
    ),
    Option("kms.key.id", "kms_key_id", _text, "Id or ARN of the KMS key. Default: the bucket's, else the account's."),
    Option(
        "bucket.key.enabled",
        "bucket_key_enabled",
        _boolean,
        "true: with aws:kms, S3 sends KMS one request for many objects.",
    ),
    Option(
        "storage.class",
        "storage_class",
        _storage_class,
        "Storage class of the four objects of a segment; other objects are small and read often. "
        "GLACIER and DEEP_ARCHIVE are rejected.",
    ),
    Option("tags", "tags", _tags, "Tags of every object: name=value,name=value."),
    Option("acl", "acl", _one_of(Acl), "Canned ACL of every object, such as bucket-owner-full-control."),
    Option(
        "checksum.algorithm",
        "checksum_algorithm",
        _one_of(ChecksumAlgorithm),
        "Checksum of each put: CRC32C (the default, without cost), CRC32, CRC64NVME, SHA1 or SHA256.",
    ),
    Option(
        "addressing.style",
        "addressing_style",
        _one_of(AddressingStyle),
        "Place of the bucket in a request: path, virtual (in the host) or auto.",
    ),
    Option(
        "endpoint.url",
        "endpoint_url",
        _url,
        "URL of the service, such as https://s3.example.com. Default: as in AWS tools.",
    ),
    Option("region", "region", _text, "Region of the service. Default: as in AWS tools, else us-east-1."),
    Option("ca.bundle", "ca_bundle", _text, "PEM file of the authorities for the server's certificate."),
    Option(
        "tls.verify",
        "tls_verify",
        _verify,
        "true; insecure switches the check of the server's certificate off, for tests.",
    ),
    Option(
        "client.certificate", "client_certificate", _text, "PEM file with the client's certificate, for mutual TLS."
    ),
    Option("client.key", "client_key", _text, "PEM file with the key of that certificate, if it is in another file."),
    Option("proxy", "proxy", _proxy, "URL of an HTTP proxy. Default: from HTTPS_PROXY and NO_PROXY.", secret=True),
    Option("profile", "profile", _text, "Profile of the AWS configuration files. Default: AWS_PROFILE, else default."),
    Option("role.arn", "role_arn", _role, "Role to assume, with the credentials of the AWS chain."),
    Option("external.id", "external_id", _external_id, "External id of the role's trust policy.", secret=True),
    Option("role.session.name", "role_session_name", _session_name, "Name of the role's sessions. Default: the SDK's."),
)
_BY_NAME = {option.name: option for option in OPTIONS}
NAME_OF = {option.attribute: option.name for option in OPTIONS}


def parse_options(given: Mapping[str, object], label: str, problems: list[str]) -> StorageOptions:
    """The options that a file says.

    Args:
        given: values by the options' names.
        label: what stands before a name in messages, `PREFIX` or the like.
        problems: takes a sentence for each that is wrong, and for those that contradict one another.
    """
    found: dict[str, Any] = {}
    for name, value in given.items():
        option = _BY_NAME.get(name)
        if option is None:
            problems.append(f"{label}{name}: unknown option{nearest(name, _BY_NAME, label)}")
            continue
        try:
            found[option.attribute] = option.read(value)
        except ValueError as error:
            hidden = option.secret or ("://" in str(value) and "@" in str(value))  # a password in a URL
            problems.append(f"{label}{name}{'' if hidden else f'={value}'}: {error}")
    connection = {each.name: found[each.name] for each in fields(Connection) if each.name in found}
    storing = {each.name: found[each.name] for each in fields(Storing) if each.name in found}
    options = StorageOptions(Connection(**connection), Storing(**storing))
    problems += [f"{label}{said}" for said in _contradictions(options, given)]
    return options


def options_of(properties: Mapping[str, str]) -> dict[str, object]:
    """What a cluster's properties say of options, by their names."""
    return {key.removeprefix(PREFIX): value for key, value in properties.items() if key.startswith(PREFIX)}


def _contradictions(options: StorageOptions, given: Mapping[str, object]) -> list[str]:
    """Options that cannot both be meant."""
    connection, storing, said = options.connection, options.storing, []
    encryption = storing.server_side_encryption
    if storing.kms_key_id is not None and encryption not in {Encryption.SSE_KMS, Encryption.DSSE_KMS}:
        said.append(_needs("kms.key.id", "server.side.encryption=aws:kms or aws:kms:dsse", encryption))
    if storing.bucket_key_enabled and encryption is not Encryption.SSE_KMS:
        said.append(_needs("bucket.key.enabled", "server.side.encryption=aws:kms", encryption))
    said += [
        f"{name}: there is no role.arn that it could be for"
        for name in ("external.id", "role.session.name")
        if name in given and "role.arn" not in given
    ]
    if connection.client_key is not None and "client.certificate" not in given:
        said.append("client.key: there is no client.certificate that it could be for")
    if connection.ca_bundle is not None and not connection.tls_verify:
        said.append("ca.bundle: tls.verify=insecure looks at no certificate; drop one of the two")
    if (connection.endpoint_url or "").startswith("http:"):
        said += [
            f"{name}: endpoint.url={connection.endpoint_url} has no TLS; drop one of the two"
            for name in ("ca.bundle", "client.certificate")
            if name in given
        ]
    return said


def _needs(name: str, other: str, found: Encryption | None) -> str:
    stands = f"server.side.encryption={found}" if found else "nothing of server.side.encryption"
    return f"{name}: it needs {other}, and {stands} is given; drop one of the two"
