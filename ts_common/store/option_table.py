"""The options of S3 by the names that files use: one model reads them, checks them and fills the reference page."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from enum import StrEnum
from typing import Annotated, Any, Final, NamedTuple

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError
from pydantic_core import ErrorDetails

from ts_common.store.checksums import ChecksumAlgorithm
from ts_common.store.options import (
    PREFIX,
    Acl,
    AddressingStyle,
    Connection,
    Encryption,
    LockMode,
    StorageOptions,
    Storing,
    option_name,
)
from ts_common.suggestions import nearest

# Objects of these classes must be restored before they can be read, which takes minutes to days.
_ARCHIVES: Final = {"GLACIER", "DEEP_ARCHIVE"}
_TAG_TEXT: Final = re.compile(r"[\w \-+=.:/@]*")  # S3's rule; letters and digits of any script
_WHOLE: Final = re.compile(r"[0-9]{1,6}", re.ASCII)
_MOST_DAYS: Final = 36_500  # S3's own bound of a default retention
_MOST_TAGS, _TAG_NAME, _TAG_VALUE = 10, 128, 256
_INSECURE: Final = "; insecure accepts any server and sends it the records; for your own authority set ca.bundle"


def _one_of(*members: StrEnum, note: str = "", **words: bool) -> BeforeValidator:
    """Return a validator that maps a text, in any case, to a member or to the value of a word."""
    accepted: dict[str, object] = {**{str(member): member for member in members}, **words}
    by_text = {text.lower(): value for text, value in accepted.items()}

    def read(value: object) -> object:
        text = str(value).strip().lower()
        if text not in by_text:
            raise ValueError(f"accepted are {', '.join(accepted)}{note}")
        return by_text[text]

    return BeforeValidator(read)


def _matching(pattern: str, expected: str) -> AfterValidator:
    """Return a validator that accepts only texts of one form."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text, re.ASCII):
            raise ValueError(f"expected {expected}")
        return text

    return AfterValidator(check)


def _readable_at_once(text: str) -> str:
    if text.upper() in _ARCHIVES:
        raise ValueError(
            "readers cannot read objects of an archive class until they are restored; use GLACIER_IR or "
            "INTELLIGENT_TIERING, which are readable at once, or move old objects by a lifecycle rule"
        )
    return text


def _tags(value: object) -> tuple[tuple[str, str], ...]:
    if isinstance(value, str):
        pairs = [pair.strip().partition("=") for pair in value.split(",") if pair.strip()]
        if not all(equals for _, equals, _ in pairs):
            raise ValueError("expected name=value,name=value")
        named = [(name.strip(), text.strip()) for name, _, text in pairs]
    elif isinstance(value, dict) and all(isinstance(text, str) for text in value.values()):
        named = list(value.items())
    else:
        raise ValueError('expected name=value,name=value; in JSON {"name": "value"}')
    _check_tags(named)
    return tuple(sorted(named))


def _check_tags(named: Sequence[tuple[str, str]]) -> None:
    if len(named) > _MOST_TAGS or len(dict(named)) != len(named):
        raise ValueError(f"S3 accepts at most {_MOST_TAGS} tags, and each name once")
    for name, text in named:
        if not 0 < len(name) <= _TAG_NAME or len(text) > _TAG_VALUE or name.startswith("aws:"):
            raise ValueError(f"tag {name!r}: a name has 1 to {_TAG_NAME} characters and does not begin with aws:, "
                             f"a value has at most {_TAG_VALUE}")  # fmt: skip
        if not (_TAG_TEXT.fullmatch(name) and _TAG_TEXT.fullmatch(text)):
            raise ValueError(f"tag {name!r}: S3 accepts letters, digits, spaces and + - = . _ : / @")


def _days(value: object) -> int:
    text = str(value).strip()
    if isinstance(value, bool) or not _WHOLE.fullmatch(text) or not 1 <= int(text) <= _MOST_DAYS:
        raise ValueError(f"expected a whole number of days from 1 to {_MOST_DAYS}")
    return int(text)


_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


def _option(description: str, *, secret: bool = False) -> Any:
    """Return an optional field; no message contains the value of a secret one."""
    return Field(default=None, description=description, repr=not secret)


class _Options(BaseModel):
    """The options; each field is named as in `Connection` or `Storing`, and has its option's name as an alias."""

    model_config = ConfigDict(extra="forbid", alias_generator=option_name)

    server_side_encryption: Annotated[Encryption, _one_of(*Encryption)] = _option(
        "Encryption of every object: AES256 (SSE-S3), aws:kms (SSE-KMS) or aws:kms:dsse. Default: the bucket's."
    )
    kms_key_id: _Text = _option("Id or ARN of the KMS key. Default: the bucket's, else the account's.")
    bucket_key_enabled: Annotated[bool, _one_of(true=True, false=False)] = _option(
        "true: with aws:kms, S3 sends KMS one request for many objects."
    )
    storage_class: Annotated[
        _Text, AfterValidator(_readable_at_once), _matching(r"[\w-]+", "one word, such as STANDARD_IA")
    ] = _option(
        "Storage class of archived objects: the four of a segment, and gap records. Other objects are small and read "
        "often. GLACIER and DEEP_ARCHIVE are rejected."
    )
    tags: Annotated[tuple[tuple[str, str], ...], BeforeValidator(_tags)] = _option(
        "Tags of every object: name=value,name=value."
    )
    acl: Annotated[Acl, _one_of(*Acl)] = _option("Canned ACL of every object, such as bucket-owner-full-control.")
    checksum_algorithm: Annotated[ChecksumAlgorithm, _one_of(*ChecksumAlgorithm)] = _option(
        "Checksum of each put: CRC32C (the default, without cost), CRC32, CRC64NVME, SHA1 or SHA256."
    )
    object_lock_mode: Annotated[LockMode, _one_of(*LockMode)] = _option(
        "Mode of the Object Lock of archived objects, with object.lock.days: GOVERNANCE (the default), or COMPLIANCE, "
        "which no identity can end: bytes that a law orders you to erase stay too."
    )
    object_lock_days: Annotated[int, BeforeValidator(_days)] = _option(
        "Days for which each archived object is retained, from its put: no version of it can be deleted before. The "
        "bucket needs Object Lock. Marks, cache objects and the live tail have no lock. Default: no lock."
    )
    addressing_style: Annotated[AddressingStyle, _one_of(*AddressingStyle)] = _option(
        "Place of the bucket in a request: path, virtual (in the host) or auto."
    )
    endpoint_url: Annotated[
        _Text,
        _matching(r"https?://[^/\s@]+/?", "http:// or https:// with a host, perhaps a port, and nothing more"),
        AfterValidator(lambda url: url.rstrip("/")),
    ] = _option("URL of the service, such as https://s3.example.com. Default: as in AWS tools.")
    region: _Text = _option("Region of the service. Default: as in AWS tools, else us-east-1.")
    ca_bundle: _Text = _option("PEM file of the authorities for the server's certificate.")
    tls_verify: Annotated[bool, _one_of(true=True, insecure=False, note=_INSECURE)] = _option(
        "true; insecure switches the check of the server's certificate off, for tests."
    )
    client_certificate: _Text = _option("PEM file with the client's certificate, for mutual TLS.")
    client_key: _Text = _option("PEM file with the key of that certificate, if it is in another file.")
    proxy: Annotated[_Text, _matching(r"https?://\S+", "http:// or https:// with a host, as in http://proxy:3128")] = (
        _option("URL of an HTTP proxy. Default: from HTTPS_PROXY and NO_PROXY.", secret=True)
    )
    profile: _Text = _option("Profile of the AWS configuration files. Default: AWS_PROFILE, else default.")
    role_arn: Annotated[
        _Text, _matching(r"arn:[\w-]+:iam::\d{12}:role/[\w+=,.@/-]+", "arn:aws:iam::123456789012:role/name")
    ] = _option("Role to assume, with the credentials of the AWS chain.")
    external_id: Annotated[
        _Text, _matching(r"[\w+=,.@:/-]{2,1224}", "2 to 1224 letters, digits and + = , . @ : / _ -")
    ] = _option("External id of the role's trust policy.", secret=True)
    role_session_name: Annotated[_Text, _matching(r"[\w+=,.@-]{2,64}", "2 to 64 letters, digits and + = , . @ _ -")] = (
        _option("Name of the role's sessions. Default: the SDK's.")
    )


class Option(NamedTuple):
    """An option on the reference page.

    Attributes:
        name: below `PREFIX`, or below `s3`.
    """

    name: str
    doc: str


OPTIONS: Final = tuple(Option(str(field.alias), str(field.description)) for field in _Options.model_fields.values())
_SECRET: Final = {field.alias for field in _Options.model_fields.values() if not field.repr}


def parse_options(given: Mapping[str, object], label: str, problems: list[str]) -> StorageOptions:
    """Return the options of a file; those with a problem keep their default.

    Args:
        given: values by the options' names.
        label: begins each name in messages, `PREFIX` or the like.
        problems: one sentence is added for each invalid option, and for each pair of options that conflict.
    """
    valid = dict(given)
    try:
        read = _Options.model_validate(valid)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            name = str(detail["loc"][0])
            valid.pop(name, None)
            problems.append(f"{label}{name}{_problem(detail, name, label)}")
        read = _Options.model_validate(valid)
    found = {name: getattr(read, name) for name in read.model_fields_set}
    options = StorageOptions(
        Connection(**{each.name: found[each.name] for each in fields(Connection) if each.name in found}),
        Storing(**{each.name: found[each.name] for each in fields(Storing) if each.name in found}),
    )
    problems += [f"{label}{conflict}" for conflict in _conflicts(options, given)]
    return options


def _problem(detail: ErrorDetails, name: str, label: str) -> str:
    """Return the end of a sentence on an invalid option: its value, unless it may be secret, and what is accepted."""
    if detail["type"] == "extra_forbidden":
        return f": unknown option{nearest(name, (option.name for option in OPTIONS), label)}"
    if detail["type"] == "string_unicode":
        return ": expected a text that UTF-8 can represent"
    value = str(detail["input"])
    hidden = name in _SECRET or ("://" in value and "@" in value)  # a URL can contain a password
    reason = str(detail["ctx"]["error"]) if detail["type"] == "value_error" else "expected a text that is not empty"
    return f"{'' if hidden else f'={value}'}: {reason}"


def options_of(properties: Mapping[str, str]) -> dict[str, object]:
    """Return the options in a cluster's properties, by their names."""
    return {key.removeprefix(PREFIX): value for key, value in properties.items() if key.startswith(PREFIX)}


_NEEDED: Final = {
    "external.id": "role.arn",
    "role.session.name": "role.arn",
    "client.key": "client.certificate",
    "object.lock.mode": "object.lock.days",
}


def _conflicts(options: StorageOptions, given: Mapping[str, object]) -> Iterator[str]:
    """Yield a sentence for each option that has no effect with the others."""
    connection, storing = options.connection, options.storing
    encryption = storing.server_side_encryption
    if storing.kms_key_id is not None and encryption not in {Encryption.SSE_KMS, Encryption.DSSE_KMS}:
        yield _needs("kms.key.id", "server.side.encryption=aws:kms or aws:kms:dsse", encryption)
    if storing.bucket_key_enabled and encryption is not Encryption.SSE_KMS:
        yield _needs("bucket.key.enabled", "server.side.encryption=aws:kms", encryption)
    for name, other in _NEEDED.items():
        if name in given and other not in given:
            yield f"{name}: it needs {other}, which is not set; drop it or set {other}"
    if connection.ca_bundle is not None and not connection.tls_verify:
        yield "ca.bundle: tls.verify=insecure checks no certificate; drop one of the two"
    if (connection.endpoint_url or "").startswith("http:"):
        for name in ("ca.bundle", "client.certificate"):
            if name in given:
                yield f"{name}: endpoint.url={connection.endpoint_url} has no TLS; drop one of the two"


def _needs(name: str, other: str, found: Encryption | None) -> str:
    present = f"server.side.encryption is {found}" if found else "server.side.encryption is not set"
    return f"{name}: it needs {other}, and {present}; drop it or change server.side.encryption"
