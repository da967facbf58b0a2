"""Opening a store by its URL."""

import subprocess
import sys
from pathlib import Path

import pytest

from dev.local.stores.azurite import AzuriteServer
from dev.local.stores.fake_gcs import GcsServer
from dev.local.stores.s3 import S3Server
from tests.common.store.conftest import BUCKET
from tests.conftest import AZURE_CONTAINER, GCS_BUCKET
from ts_common.errors import ConfigurationError, OperatorError
from ts_common.store.factory import Location, Scheme, open_store, parse_location
from ts_common.store.options import StorageOptions, Storing


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("s3://bucket", Location(Scheme.S3, "bucket", "")),
        ("s3://bucket/", Location(Scheme.S3, "bucket", "")),
        ("s3://bucket/base", Location(Scheme.S3, "bucket", "base")),
        (" s3://my.bucket-2/base/prefix/ ", Location(Scheme.S3, "my.bucket-2", "base/prefix")),
        ("gs://bucket/base", Location(Scheme.GCS, "bucket", "base")),
        ("az://container/base", Location(Scheme.AZURE, "container", "base")),
        ("webhdfs://nn:9870/a/b/", Location(Scheme.WEBHDFS, "nn:9870", "a/b")),
        ("swebhdfs://nn.example.com:9871/a", Location(Scheme.SWEBHDFS, "nn.example.com:9871", "a")),
        ("file:///data", Location(Scheme.FILE, "", "/data")),
        ("file:///data/kafka archive/", Location(Scheme.FILE, "", "/data/kafka archive")),
    ],
)
def test_a_url_names_a_driver_and_a_place(url: str, location: Location) -> None:
    """Slashes at the end and outer spaces are ignored."""
    assert parse_location(url) == location


def test_the_text_of_a_location_is_its_url() -> None:
    """Equal locations have equal text, and parsing the text returns the same location."""
    for urls in (
        ("s3://bucket/base", "s3://bucket/base/"),
        ("s3://bucket", "s3://bucket/"),
        ("file:///d", "file:///d/"),
    ):
        (text,) = {str(parse_location(url)) for url in urls}
        assert text == urls[0]
        assert parse_location(text) == parse_location(urls[1])


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("", "accepted are s3://bucket/base/prefix, gs://bucket/base/prefix, az://container/base/prefix"),
        ("bucket/base", "accepted are s3://bucket/base/prefix, gs://bucket/base/prefix, az://container/base/prefix"),
        ("/data", "accepted are s3://bucket/base/prefix, gs://bucket/base/prefix, az://container/base/prefix"),
        ("ftp://bucket/base", "begins with 'ftp'"),
        ("gcs://bucket/base", "write gs://bucket/base/prefix"),
        ("abfss://container@account.dfs.core.windows.net/base", "write az://container/base/prefix"),
        ("gs://", "names the bucket ''"),
        ("hdfs://nn:8020/a", "write webhdfs://namenode:9870/directory"),
        ("webhdfs://nn/a", "names no NameNode: write webhdfs://host:port/directory"),
        ("webhdfs://nn:9870/", "names the root of the file system"),
        ("swebhdfs://nn:9870/a//b", "an invalid directory"),
        ("az://ab/base", "az://bucket/base/prefix"),
        ("S3://bucket", "begins with 'S3'"),
        ("s3a://bucket/base", "write s3://bucket/base"),
        ("s3n://bucket", "write s3://bucket"),
        ("s3://", "names the bucket ''"),
        ("s3:///base", "names the bucket ''"),
        ("s3://ab/base", "3 to 63 letters"),
        ("s3://-bucket", "3 to 63 letters"),
        (f"s3://{'b' * 64}", "3 to 63 letters"),
        ("s3://bucket//base", "base prefix"),
        ("s3://bucket/a/../b", "base prefix"),
        ("file://data", "three slashes"),
        ("file://./data", "three slashes"),
        ("file:///", "root of the file system"),
        ("file:///a/../b", "'..'"),
        ("file:///a//b", "empty"),
    ],
)
def test_a_url_that_names_no_store_is_refused_with_what_is_accepted(url: str, problem: str) -> None:
    """One sentence has the value and the accepted form."""
    for ask in (parse_location, open_store):
        with pytest.raises(ConfigurationError) as raised:
            ask(url)
        (said,) = raised.value.problems
        assert problem in said
        assert repr(url) in said


def test_credentials_in_a_url_are_refused_and_not_repeated() -> None:
    """Errors are logged, so they must not contain a secret."""
    with pytest.raises(ConfigurationError, match="environment, a profile or a role") as raised:
        parse_location("s3://AKIDEXAMPLE:hunter2@bucket/base")
    assert "hunter2" not in str(raised.value)


def test_a_directory_needs_no_boto3(tmp_path: Path) -> None:
    """A process that uses only `file://` loads no SDK and needs no memory for it."""
    program = (
        "import sys; from ts_common.store.factory import open_store\n"
        f"with open_store('file://{tmp_path}') as store: store.put('key', b'x')\n"
        "assert store.location and not {'boto3', 'botocore', 'urllib3'} & sys.modules.keys(), 'loaded'"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_azure_and_google_need_no_sdk(azure: AzuriteServer, google: GcsServer) -> None:
    """With a key or an emulator, neither boto3, another SDK nor a library for tokens is loaded."""
    program = (
        "import sys; from ts_common.store.factory import open_store\n"
        f"for url in ('az://{AZURE_CONTAINER}/quiet', 'gs://{GCS_BUCKET}/quiet'):\n"
        "    with open_store(url) as store: store.put('key', b'x')\n"
        "assert not {'boto3', 'botocore', 'google.auth', 'azure.identity', 'requests'} & sys.modules.keys(), 'loaded'"
    )
    done = subprocess.run([sys.executable, "-W", "default", "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    del azure, google


@pytest.mark.parametrize("url", ["gs://bucket/base", "az://container/base", "webhdfs://nn:9870/a", "file:///directory"])
def test_options_of_s3_are_refused_for_other_stores(url: str) -> None:
    """They would have no effect there."""
    options = StorageOptions(storing=Storing(storage_class="STANDARD_IA"))
    with pytest.raises(ConfigurationError, match=r"this store is not S3: drop them"):
        open_store(url, options)


def test_the_driver_of_s3_loads_without_a_word(aws: S3Server) -> None:
    """Neither loading nor using the SDK writes to stdout or stderr."""
    program = (
        "from ts_common.store.factory import open_store\n"
        f"with open_store('s3://{BUCKET}/quiet', threads=80) as store:\n"
        "    for future in [store.put_async(f'k{n}', b'x') for n in range(160)]: future.result()\n"
        "    store.delete([i.key for i in store.list()])\n"
    )
    command = [sys.executable, "-W", "default", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("name", "value"), [("AWS_ENDPOINT_URL_S3", "no url"), ("AWS_PROFILE", "absent"), ("AWS_REGION", "no region")]
)
def test_a_configuration_that_the_sdk_cannot_use_is_the_operators(
    aws: S3Server, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """An invalid endpoint and a missing profile are errors at opening."""
    monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_DEFAULT_REGION", value if name == "AWS_REGION" else "us-east-1")
    with pytest.raises(OperatorError, match=value):
        open_store(f"s3://{BUCKET}/base")
