"""Options of S3 as values: their names, their defaults, and stores that they do not concern."""

from dataclasses import fields

import pytest

from ts_common.errors import ConfigurationError
from ts_common.store.options import (
    NO_OPTIONS,
    PREFIX,
    Connection,
    Encryption,
    StorageOptions,
    Storing,
    option_key,
    option_name,
    refuse_for_others,
)

STORING = Storing(server_side_encryption=Encryption.SSE_KMS, kms_key_id="k", tags=(("team", "data"),))


def test_an_option_has_the_name_of_its_attribute() -> None:
    """With dots, and in a properties file below the prefix of S3."""
    assert option_name("server_side_encryption") == "server.side.encryption"
    assert option_key("ca_bundle") == f"{PREFIX}ca.bundle" == "storage.service.endpoint.s3.ca.bundle"


def test_options_that_differ_from_the_bucket_are_named() -> None:
    """Without options nothing differs."""
    assert STORING.changed == {"server_side_encryption", "kms_key_id", "tags"}
    assert Storing().changed == frozenset()
    assert Storing(tags=()).changed == frozenset()


def test_some_options_can_be_selected() -> None:
    """The probe tries options one after the other: those without a name have their defaults."""
    assert STORING.only(("kms_key_id", "acl")) == Storing(kms_key_id="k")
    assert STORING.only(tuple(each.name for each in fields(Storing))) == STORING
    assert STORING.only(()) == Storing()


@pytest.mark.parametrize("options", [StorageOptions(storing=STORING), StorageOptions(Connection(region="eu-west-1"))])
def test_options_are_rejected_for_a_store_that_is_not_s3(options: StorageOptions) -> None:
    """They would have no effect there; without options every store is accepted."""
    with pytest.raises(
        ConfigurationError, match=r"(?s)gs://bucket.*storage\.service\.endpoint\.s3\.\* applies only to S3"
    ):
        refuse_for_others("gs://bucket", options)
    refuse_for_others("gs://bucket", NO_OPTIONS)


def test_no_text_of_a_connection_contains_a_secret() -> None:
    """Values are logged and are in errors."""
    connection = Connection(proxy="http://me:hunter2@proxy", external_id="hunter2", region="eu-west-1")
    assert "hunter2" not in repr(StorageOptions(connection))
    assert "eu-west-1" in repr(StorageOptions(connection))
