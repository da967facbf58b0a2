"""Credentials in URLs are never shown, whatever shows the URL."""

import pickle

import pytest

from ts_common.errors import ConfigurationError, StoreUnavailable
from ts_common.redaction import redacted


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("proxy http://me:secret@proxy:3128 is away", "proxy http://***@proxy:3128 is away"),
        ("s3://AKIA:a/b+c@bucket/base", "s3://***@bucket/base"),
        ("https://token@host/x, http://a:b@c", "https://***@host/x, http://***@c"),
        ("'http://me:se cret'", "'http://me:se cret'"),
        ("s3://bucket/base/a@b", "s3://bucket/base/a@b"),
        ("abfss://data@account.dfs/base, ABFSS://a:b@c", "abfss://data@account.dfs/base, ABFSS://***@c"),
        ("mail@host and http://host:80/x", "mail@host and http://host:80/x"),
    ],
)
def test_what_stands_before_the_host_is_hidden_and_nothing_else(text: str, shown: str) -> None:
    """A name, a password, a token."""
    assert redacted(text) == shown


def test_no_error_of_ours_holds_credentials_of_a_url() -> None:
    """Wherever it ends: in a log, in Spark's report of a task, pickled or not."""
    url = "http://me:secret@proxy:3128"
    error = StoreUnavailable(f"{url} is away", 7)
    assert error.args == pickle.loads(pickle.dumps(error)).args == ("http://***@proxy:3128 is away", 7)
    refused = ConfigurationError("the file", [f"{url} is no proxy"])
    assert "secret" not in repr(refused) + str(refused) + str(refused.problems)
