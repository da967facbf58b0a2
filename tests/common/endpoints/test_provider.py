import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.common.endpoints.files import CLUSTER, S3, problems_of, write_file
from ts_common.endpoints import EndpointProvider
from ts_common.endpoints.provider import open_provider
from ts_common.errors import ConfigurationError
from ts_common.store.options import Connection, StorageOptions, Storing

JAVA_CLASS = "com.pinterest.kafka.tieredstorage.common.discovery.s3.ExampleS3StorageServiceEndpointProvider"


class ByTeam(EndpointProvider):
    """A provider as an operator would write it."""

    def __init__(self, cluster_id: str, config_dir: Path, properties: Mapping[str, str]) -> None:
        super().__init__(cluster_id, config_dir, properties)
        self._bucket = properties["team.bucket"]
        self._base = f"{cluster_id}/{config_dir.name}"

    def location(self, topic: str) -> str:
        return f"s3://{self._bucket}-{topic[0]}/{self._base}"

    def locations(self) -> frozenset[str]:
        return frozenset({self.location("a"), self.location("b")})


class NotDerived:
    """A class that does not derive from `EndpointProvider`."""

    def location(self, topic: str) -> str:
        return "s3://bucket"


class NamesNoStore(EndpointProvider):
    """A provider that returns invalid store URLs."""

    def location(self, topic: str) -> str:
        return "bucket"

    def locations(self) -> frozenset[str]:
        return frozenset({"bucket", "s3a://bucket/base"})


@pytest.mark.parametrize("name", [None, "", "url"])
def test_one_url_is_every_topics_location(name: str | None, tmp_path: Path) -> None:
    """Without a provider, or with `url`, all topics have the same normalized location."""
    provider = open_provider(name, CLUSTER, tmp_path, {"storage.service.endpoint.url": "s3://bucket/base/prefix/"})
    assert isinstance(provider, EndpointProvider)
    assert provider.location("a") == provider.location("b") == "s3://bucket/base/prefix"
    assert provider.locations() == {"s3://bucket/base/prefix"}


def test_a_missing_url_is_named(tmp_path: Path) -> None:
    """The problem names the key and shows an example."""
    (problem,) = problems_of(None, tmp_path, {})
    assert "storage.service.endpoint.url is missing" in problem
    assert "s3://bucket/base/prefix" in problem


def test_an_invalid_url_is_reported_with_its_key(tmp_path: Path) -> None:
    """The store factory's problem with a URL names the key of the URL."""
    (problem,) = problems_of("url", tmp_path, {"storage.service.endpoint.url": "s3a://bucket/base"})
    assert problem.startswith("storage.service.endpoint.url: ")
    assert "write s3://bucket/base" in problem


def test_the_java_examples_class_is_refused_with_the_lines_towrite_file(tmp_path: Path) -> None:
    """The error names the provider and the key that replace the Java class."""
    (problem,) = problems_of(JAVA_CLASS, tmp_path, {})
    assert "use json" in problem
    assert "storage.service.endpoint.json.path=<path of its file>" in problem


@pytest.mark.parametrize(
    ("name", "said"), [("com.example.Provider", "module:Class"), ("yaml", "expected url, json or module:Class")]
)
def test_an_unknown_provider_is_refused_with_what_is_accepted(name: str, said: str, tmp_path: Path) -> None:
    """The error for another Java class, and for a misspelt name, lists what is accepted."""
    (problem,) = problems_of(name, tmp_path, {})
    assert f"storage.service.endpoint.provider.class={name}" in problem
    assert said in problem


def test_an_operators_class_is_given_cluster_directory_and_properties(tmp_path: Path) -> None:
    """The class that a dotted path names receives the cluster's id, the directory and the properties."""
    provider = open_provider(f"{__name__}:ByTeam", CLUSTER, tmp_path, {"team.bucket": "team"})
    assert provider.location("alpha") == f"s3://team-a/{CLUSTER}/{tmp_path.name}"
    assert len(provider.locations()) == 2


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ByTeam", "KeyError: 'team.bucket'"),
        ("NotDerived", "is not a subclass of ts_common.endpoints.provider.EndpointProvider"),
        ("Absent", "cannot load"),
        ("NamesNoStore", "write s3://bucket/base"),
    ],
)
def test_an_operators_class_that_cannot_serve_is_a_configuration_error(name: str, said: str, tmp_path: Path) -> None:
    """A class that is missing, fails, has another base or returns invalid URLs is rejected at start."""
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        open_provider(f"{__name__}:{name}", CLUSTER, tmp_path, {})


def test_options_of_the_properties_file_hold_for_every_provider(tmp_path: Path) -> None:
    """Options apply to the one URL, to each endpoint of a file, and to an operator's class."""
    said = {S3 + "storage.class": "STANDARD_IA", S3 + "region": "eu-west-1"}
    write_file(tmp_path, {"default": {"bucket": "archive"}, "topics": {"payments": {"bucket": "restricted"}}})
    for name, own in (
        ("url", {"storage.service.endpoint.url": "s3://bucket/base"}),
        ("json", {}),
        (f"{__name__}:ByTeam", {"team.bucket": "team"}),
    ):
        provider = open_provider(name, CLUSTER, tmp_path, {**said, **own})
        endpoints = provider.endpoints() | {provider.endpoint("a"), provider.endpoint("b")}
        assert {endpoint.location for endpoint in endpoints} == provider.locations()
        assert {endpoint.options for endpoint in endpoints} == {
            StorageOptions(Connection(region="eu-west-1"), Storing(storage_class="STANDARD_IA"))
        }


def test_a_directory_accepts_no_s3_options(tmp_path: Path) -> None:
    """S3 options for a directory are rejected, because they would have no effect."""
    (problem,) = problems_of(
        "url", tmp_path, {"storage.service.endpoint.url": "file:///archive", S3 + "acl": "private"}
    )
    assert problem.startswith("storage.service.endpoint.url: ")
    assert "drop them" in problem
