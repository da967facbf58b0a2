"""Credentials in URLs are never shown, in errors, logs or reports."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
        ("http://me:p@ss@host:9/bucket", "http://***@host:9/bucket"),
        ("https://to@ken@host/x", "https://***@host/x"),
        ("http://a:b@c/d,http://e:f@g/h", "http://***@c/d,http://***@g/h"),
        ("https://a.blob/c/k?sv=1&sig=a%2Bb&se=2", "https://a.blob/c/k?sv=1&sig=***&se=2"),
        ("/k?X-Amz-Signature=ab&X-Amz-Security-Token=cd", "/k?X-Amz-Signature=***&X-Amz-Security-Token=***"),
        ("/k?X-Goog-Signature=ab'", "/k?X-Goog-Signature=***'"),
        ("/webhdfs/v1/x?op=OPEN&delegation=abc", "/webhdfs/v1/x?op=OPEN&delegation=***"),
        ("u=https%3A%2F%2Fh%3Fa%3D1%26sig%3Dab", "u=https%3A%2F%2Fh%3Fa%3D1%26sig%3D***"),
        ("design=3, continuation-token=4", "design=3, continuation-token=4"),
    ],
)
def test_only_the_part_before_the_host_is_hidden(text: str, shown: str) -> None:
    """The hidden part can be a name, a password or a token."""
    assert redacted(text) == shown


_NO_BREAK = st.characters(exclude_characters="'\"", exclude_categories=["Zs", "Zl", "Zp", "Cc", "Cs"])


@given(
    name=st.text(_NO_BREAK).filter(lambda text: not set("/@:,;|") & set(text)),
    password=st.text(_NO_BREAK).filter(lambda text: not set(",;|") & set(text)),
)
def test_no_password_of_a_url_is_shown_whatever_characters_it_has(name: str, password: str) -> None:
    """A password can contain `@`, a slash or a colon; the host and the text around the URL are still shown."""
    secret = f"Zq7x{password}Zq7x"
    assert redacted(f"to http://{name}:{secret}@host:9/bucket is away") == "to http://***@host:9/bucket is away"


@given(
    name=st.sampled_from(["sig", "Signature", "X-Amz-Signature", "x-amz-security-token", "X-Goog-Signature"]),
    before=st.sampled_from(["?", "&", "?sv=1&", " ", ""]),
    value=st.text("abcXYZ0189+/=%._~-", min_size=1),
)
def test_no_signature_of_a_query_is_shown(name: str, before: str, value: str) -> None:
    """The value is hidden up to the next parameter."""
    assert redacted(f"{before}{name}={value}&se=1") == f"{before}{name}=***&se=1"


def test_no_error_contains_credentials_of_a_url() -> None:
    """This holds in a log, in Spark's report of a task, and after pickling."""
    url = "http://me:secret@proxy:3128"
    error = StoreUnavailable(f"{url} is away", 7)
    assert error.args == pickle.loads(pickle.dumps(error)).args == ("http://***@proxy:3128 is away", 7)
    refused = ConfigurationError("the file", [f"{url} is no proxy"])
    assert "secret" not in repr(refused) + str(refused) + str(refused.problems)
