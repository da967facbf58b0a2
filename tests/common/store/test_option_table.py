"""S3 options in files: reading, rejecting, and hiding secrets."""

from collections.abc import Mapping

import pytest

from ts_common.config.cluster_config import parse_config
from ts_common.errors import ConfigurationError
from ts_common.store.checksums import ChecksumAlgorithm
from ts_common.store.option_table import OPTIONS, parse_options
from ts_common.store.options import (
    NO_OPTIONS,
    Acl,
    AddressingStyle,
    Connection,
    Encryption,
    LockMode,
    StorageOptions,
    Storing,
)

ROLE = "arn:aws:iam::123456789012:role/archive"
SECRET = "hunter2"


def parsed(given: Mapping[str, object]) -> StorageOptions:
    problems: list[str] = []
    options = parse_options(given, "", problems)
    assert problems == []
    return options


def problems_of(given: Mapping[str, object]) -> list[str]:
    problems: list[str] = []
    parse_options(given, "x.", problems)
    return problems


def test_every_option_is_read() -> None:
    """Each name of the reference page sets its own attribute."""
    given = {
        "server.side.encryption": "aws:kms",
        "kms.key.id": "alias/archive",
        "bucket.key.enabled": "true",
        "storage.class": "STANDARD_IA",
        "tags": "team=data, stage=prod",
        "acl": "bucket-owner-full-control",
        "checksum.algorithm": "sha256",
        "object.lock.mode": "compliance",
        "object.lock.days": "365",
        "addressing.style": "virtual",
        "endpoint.url": "https://s3.example.com:8443/",
        "region": "eu-west-1",
        "ca.bundle": "/etc/ca.pem",
        "tls.verify": "true",
        "client.certificate": "/etc/me.pem",
        "client.key": "/etc/me.key",
        "proxy": f"http://me:{SECRET}@proxy:3128",
        "profile": "archive",
        "role.arn": ROLE,
        "external.id": "theirs",
        "role.session.name": "broker-1",
    }
    assert set(given) == {option.name for option in OPTIONS}
    assert parsed(given) == StorageOptions(
        Connection(
            addressing_style=AddressingStyle.VIRTUAL,
            endpoint_url="https://s3.example.com:8443",
            region="eu-west-1",
            ca_bundle="/etc/ca.pem",
            client_certificate="/etc/me.pem",
            client_key="/etc/me.key",
            proxy=f"http://me:{SECRET}@proxy:3128",
            profile="archive",
            role_arn=ROLE,
            external_id="theirs",
            role_session_name="broker-1",
        ),
        Storing(
            server_side_encryption=Encryption.SSE_KMS,
            kms_key_id="alias/archive",
            bucket_key_enabled=True,
            storage_class="STANDARD_IA",
            tags=(("stage", "prod"), ("team", "data")),
            acl=Acl.BUCKET_OWNER_FULL_CONTROL,
            checksum_algorithm=ChecksumAlgorithm.SHA256,
            object_lock_mode=LockMode.COMPLIANCE,
            object_lock_days=365,
        ),
    )


def test_absent_options_change_nothing() -> None:
    """Without options the bucket and the environment decide."""
    assert parsed({}) == NO_OPTIONS


def test_tags_and_booleans_are_accepted_as_json_values() -> None:
    """An object and a boolean of JSON mean the same as their texts."""
    given = {"server.side.encryption": "aws:kms", "bucket.key.enabled": True, "tags": {"team": "data: all"}}
    assert parsed(given).storing.tags == (("team", "data: all"),)
    assert parsed(given).storing.bucket_key_enabled is True


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("server.side.encryption", "SSE", "accepted are AES256, aws:kms, aws:kms:dsse"),
        ("bucket.key.enabled", "yes", "accepted are true, false"),
        ("storage.class", "GLACIER", "readable at once"),
        ("storage.class", "deep_archive", "until they are restored"),
        ("storage.class", "two words", "one word"),
        ("tags", "team", "name=value,name=value"),
        ("tags", 5, "name=value,name=value"),
        ("tags", ",".join(f"t{n}=x" for n in range(11)), "at most 10 tags"),
        ("tags", "a=1,a=2", "each name once"),
        ("tags", "aws:x=1", "does not begin with aws:"),
        ("tags", "a=<b>", "S3 accepts letters"),
        ("acl", "log-delivery-write", "accepted are private"),
        ("checksum.algorithm", "MD5", "accepted are CRC32C, CRC32, CRC64NVME, SHA1, SHA256"),
        ("object.lock.days", "0", "from 1 to 36500"),
        ("object.lock.days", "36501", "from 1 to 36500"),
        ("object.lock.days", "0.5", "a whole number of days"),
        ("object.lock.days", True, "a whole number of days"),
        ("addressing.style", "host", "accepted are auto, path, virtual"),
        ("endpoint.url", "s3.example.com", "http:// or https://"),
        ("endpoint.url", "https://s3.example.com/bucket", "nothing more"),
        ("tls.verify", "false", "accepted are true, insecure"),
        ("proxy", "proxy:3128", "http://proxy:3128"),
        ("role.arn", "archive", "arn:aws:iam::123456789012:role/name"),
        ("region", "", "not empty"),
        ("region", 5, "not empty"),
        ("region", "\ud800", "that UTF-8 can represent"),
    ],
)
def test_an_invalid_value_is_refused_with_the_accepted_ones(name: str, value: object, said: str) -> None:
    """The message has the option's name in the file, and the accepted values."""
    (problem,) = problems_of({name: value})
    assert problem.startswith(f"x.{name}")
    assert said in problem


@pytest.mark.parametrize(
    ("name", "value", "said"), [("external.id", "x", "2 to 1224"), ("role.session.name", "a b", "2 to 64")]
)
def test_what_sts_would_refuse_of_a_role_is_refused_here(name: str, value: str, said: str) -> None:
    """By the rules of the STS API; the SDK would report it only at the first request."""
    (problem,) = problems_of({"role.arn": ROLE, name: value})
    assert problem.startswith(f"x.{name}")
    assert said in problem


def test_an_unknown_mode_of_a_lock_is_refused() -> None:
    """The message has the two of S3; a legal hold is no mode."""
    (problem,) = problems_of({"object.lock.days": "1", "object.lock.mode": "legal"})
    assert problem == "x.object.lock.mode=legal: accepted are GOVERNANCE, COMPLIANCE"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"server.side.encryption": "AES256", "kms.key.id": "k"},
            "kms.key.id: it needs server.side.encryption=aws:kms",
        ),
        ({"kms.key.id": "k"}, "server.side.encryption is not set"),
        ({"server.side.encryption": "aws:kms:dsse", "bucket.key.enabled": "true"}, "bucket.key.enabled: it needs"),
        ({"external.id": "theirs"}, "external.id: it needs role.arn"),
        ({"role.session.name": "me"}, "role.session.name: it needs role.arn"),
        ({"object.lock.mode": "GOVERNANCE"}, "object.lock.mode: it needs object.lock.days"),
        ({"client.key": "k.pem"}, "client.key: it needs client.certificate"),
        ({"ca.bundle": "ca.pem", "tls.verify": "insecure"}, "checks no certificate"),
        ({"ca.bundle": "ca.pem", "endpoint.url": "http://s3"}, "ca.bundle: endpoint.url=http://s3 has no TLS"),
    ],
)
def test_options_that_contradict_one_another_are_named(given: Mapping[str, object], said: str) -> None:
    """The message names both options."""
    (problem,) = problems_of(given)
    assert said in problem


def test_all_problems_of_a_file_are_reported_at_once() -> None:
    """Options and other keys, with the nearest right name for an unknown one."""
    prefix = "storage.service.endpoint.s3."
    with pytest.raises(ConfigurationError) as refused:
        parse_config(
            {
                prefix + "storage.clas": "STANDARD_IA",
                prefix + "server.side.encryption": "AES256",
                prefix + "kms.key.id": "k",
                prefix + "acl": "open",
                "storage.service.endpoint.storage.class": "STANDARD_IA",
                "ts.segment.uploader.upload.thread.count": "0",
            },
            "prod.properties",
        )
    text = str(refused.value)
    assert text.startswith("prod.properties: 5 problems")
    assert f"{prefix}storage.clas: unknown option; did you mean {prefix}storage.class?" in text
    assert f"storage.service.endpoint.storage.class: unknown key; did you mean {prefix}storage.class?" in text
    assert f"{prefix}acl=open: accepted are" in text


def test_secrets_are_in_no_message_and_no_text_of_a_value() -> None:
    """No message and no repr contains a proxy's password or an external id."""
    given = {
        "proxy": f"ftp://me:{SECRET}@proxy",
        "external.id": f"<{SECRET}>",
        "endpoint.url": f"https://me:{SECRET}@s3",
    }
    told = problems_of(given)
    assert len(told) == 4
    assert SECRET not in str(told)
    properties = {
        "storage.service.endpoint.s3.proxy": f"http://me:{SECRET}@proxy:1",
        "storage.service.endpoint.s3.role.arn": ROLE,
        "storage.service.endpoint.s3.external.id": SECRET,
    }
    config, _ = parse_config(properties, "f")
    options = parsed({"proxy": f"http://me:{SECRET}@proxy:1", "role.arn": ROLE, "external.id": SECRET})
    assert options.connection.proxy == f"http://me:{SECRET}@proxy:1"
    assert SECRET not in repr(config) + str(config) + repr(options)
