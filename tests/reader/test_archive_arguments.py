"""Arguments of `Archive`: one error lists all problems, each with name, value and what is accepted."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.made_archive import CLUSTER
from ts_common.errors import ConfigurationError
from ts_common.store.options import AddressingStyle, Connection, Credentials
from ts_reader import Archive

S3 = "s3://bucket/base"


def archive_problems(*places: Any, **arguments: Any) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as caught:
        Archive(*places, **arguments)
    assert caught.value.source == "arguments of Archive"
    return caught.value.problems


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            {"location": None},
            "location=None: a URL is expected, as in s3://bucket/base/prefix or file:///directory",
        ),
        ({"location": "s3a://bucket"}, "location='s3a://bucket': 's3a://bucket' is the Hadoop form: write s3://bucket"),
        ({"prefix_entropy_bits": "4"}, "prefix_entropy_bits='4': a whole number from 0 to 128 is expected"),
        ({"workers": "two"}, "workers='two': a whole number, at least 1, is expected"),
        (
            {"location": "file:///archive", "storage_options": {"region": "eu-west-1"}},
            "storage_options: they apply to S3 only, and file:///archive is not S3; drop them",
        ),
    ],
)
def test_a_wrong_argument_of_an_archive_is_one_problem(arguments: dict[str, Any], problem: str) -> None:
    """It names the argument, its value and what is accepted."""
    assert archive_problems(**{"location": S3, "cluster": CLUSTER, **arguments}) == (problem,)


def test_all_wrong_arguments_of_an_archive_are_one_error(tmp_path: Path) -> None:
    """Each has its own line; a file's own problems follow when these are corrected."""
    wrong = {"prefix_entropy_bits": 200, "storage_options": {"regoin": "x"}, "workers": 0}
    problems = archive_problems("bucket", "a b", **wrong)
    assert [re.split("[=:]", problem)[0] for problem in problems] == [
        "workers",
        "location",
        "cluster",
        "prefix_entropy_bits",
        "storage_options",
    ]
    assert archive_problems(S3, config="prod.conf", prefix_entropy_bits=1, storage_options={}, workers=0) == (
        "workers=0: a whole number, at least 1, is expected",
        "config sets location, prefix_entropy_bits, storage_options too: give one of the two",
        "config='prod.conf': a file named <clusterId>.properties is expected",
    )
    for name in (5, "a b.properties", Path("prod")):
        assert archive_problems(config=name) == (
            f"config={str(name)!r}: a file named <clusterId>.properties is expected",
        )
    file = tmp_path / "prod.properties"
    with pytest.raises(ConfigurationError, match="there is no such file"):
        Archive(config=file)
    file.write_text("storage.service.endpoint.url=s3://bucket/base\nstorage.service.endpoint.urk=x\n")
    with pytest.raises(ConfigurationError, match=r"storage\.service\.endpoint\.urk"):
        Archive(config=file)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"regoin": "x"}, "'regoin' is no option of a connection; did you mean region?"),
        ({5: "x"}, "5 is no option of a connection"),
        (
            {"endpoint_url": "ftp://x"},
            "endpoint_url=ftp://x: expected http:// or https:// with a host, perhaps a port,",
        ),
        ({"addressing_style": "dns"}, "addressing_style=dns: accepted are auto, path, virtual"),
        ({"tls_verify": "no"}, "tls_verify=no: accepted are true, insecure;"),
        ({"region": True}, "region=True: expected a text that is not empty"),
        ({"external_id": "abc"}, "external_id: it needs role_arn, which is not set; drop it or set role_arn"),
        ({"access_key_id": "a"}, "access_key_id and secret_access_key are needed together"),
        ({"secret_access_key": "a"}, "access_key_id and secret_access_key are needed together"),
        ({"session_token": "a"}, "access_key_id and secret_access_key are needed together"),
        ({"access_key_id": "", "secret_access_key": ""}, "access_key_id and secret_access_key are needed together"),
        ({"access_key_id": "a", "secret_access_key": "b", "session_token": 5}, "session_token: a text is expected"),
    ],
)
def test_a_wrong_storage_option_is_named_as_python_has_it(options: dict[Any, Any], problem: str) -> None:
    """The store's own name of an option has dots."""
    (found,) = archive_problems(S3, CLUSTER, storage_options=options)
    assert found.startswith(f"storage_options: {problem}")


@pytest.mark.parametrize("options", [5, "key=hush", [("secret_access_key", "hush")]])
def test_storage_options_that_are_no_mapping_are_a_problem(options: Any) -> None:
    """The value may have a secret and is not shown."""
    assert archive_problems(S3, CLUSTER, storage_options=options) == (
        "storage_options: names and values are expected, as in {'region': 'eu-west-1'}",
    )


def test_storage_options_are_the_connection_of_each_scan() -> None:
    """An option without a value has its default."""
    options: Mapping[str, Any] = {
        "endpoint_url": "https://s3.example.com/",
        "addressing_style": "path",
        "tls_verify": False,
        "profile": None,
        "access_key_id": "who",
        "secret_access_key": "hush",
    }
    connection = Archive(S3, CLUSTER, storage_options=options).scan("t").query.connection
    assert connection == Connection(
        AddressingStyle.PATH, "https://s3.example.com", tls_verify=False, credentials=Credentials("who", "hush")
    )
    assert Archive(S3, CLUSTER, storage_options={"tls_verify": True}).scan("t").query.connection == Connection()
