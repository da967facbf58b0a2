import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from ts_common.endpoints import EndpointProvider
from ts_common.endpoints.provider import open_provider
from ts_common.errors import ConfigurationError
from ts_common.store.options import Connection, Encryption, Endpoint, StorageOptions, Storing

CLUSTER = "events"
JAVA_CLASS = "com.pinterest.kafka.tieredstorage.common.discovery.s3.ExampleS3StorageServiceEndpointProvider"


class ByTeam(EndpointProvider):
    """A provider as an operator writes one."""

    def __init__(self, cluster_id: str, config_dir: Path, properties: Mapping[str, str]) -> None:
        super().__init__(cluster_id, config_dir, properties)
        self._bucket = properties["team.bucket"]
        self._base = f"{cluster_id}/{config_dir.name}"

    def location(self, topic: str) -> str:
        return f"s3://{self._bucket}-{topic[0]}/{self._base}"

    def locations(self) -> frozenset[str]:
        return frozenset({self.location("a"), self.location("b")})


class NotDerived:
    """Not a provider: it does not derive from the class."""

    def location(self, topic: str) -> str:
        return "s3://bucket"


class NamesNoStore(EndpointProvider):
    """A provider that returns no store URLs."""

    def location(self, topic: str) -> str:
        return "bucket"

    def locations(self) -> frozenset[str]:
        return frozenset({"bucket", "s3a://bucket/base"})


def _write(directory: Path, content: object, name: str = f"{CLUSTER}.endpoints.json") -> Path:
    path = directory / name
    path.write_text(json.dumps(content))
    return path


def _problems(name: str | None, directory: Path, properties: Mapping[str, str]) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as raised:
        open_provider(name, CLUSTER, directory, properties)
    return raised.value.problems


@pytest.mark.parametrize("name", [None, "", "url"])
def test_one_url_is_every_topics_location(name: str | None, tmp_path: Path) -> None:
    """Without a provider's name, or with `url`, all topics share one location, normalised."""
    provider = open_provider(name, CLUSTER, tmp_path, {"storage.service.endpoint.url": "s3://bucket/base/prefix/"})
    assert isinstance(provider, EndpointProvider)
    assert provider.location("a") == provider.location("b") == "s3://bucket/base/prefix"
    assert provider.locations() == {"s3://bucket/base/prefix"}


def test_a_missing_url_is_named(tmp_path: Path) -> None:
    """The problem has the key and an example."""
    (problem,) = _problems(None, tmp_path, {})
    assert "storage.service.endpoint.url is missing" in problem
    assert "s3://bucket/base/prefix" in problem


def test_a_url_that_is_none_is_named_with_its_key(tmp_path: Path) -> None:
    """The problem has the store factory's message and the key of the URL."""
    (problem,) = _problems("url", tmp_path, {"storage.service.endpoint.url": "s3a://bucket/base"})
    assert problem.startswith("storage.service.endpoint.url: ")
    assert "write s3://bucket/base" in problem


def test_a_table_gives_each_topic_its_bucket_and_the_rest_the_default(tmp_path: Path) -> None:
    """Each named topic has the location of the file, and all others the default."""
    _write(
        tmp_path,
        {
            "default": {"bucket": "archive", "prefix": "/production/"},
            "topics": {"payments": {"bucket": "restricted", "prefix": "p"}, "clicks": {"bucket": "cheap"}},
        },
    )
    provider = open_provider("json", CLUSTER, tmp_path, {})
    assert provider.location("payments") == "s3://restricted/p"
    assert provider.location("clicks") == "s3://cheap"
    assert provider.location("payments-2") == "s3://archive/production"
    assert provider.locations() == {"s3://archive/production", "s3://restricted/p", "s3://cheap"}


def test_a_topic_that_a_table_without_default_does_not_name_is_an_error(tmp_path: Path) -> None:
    """Without a default, a topic that the table does not name has no location, and the message reports it."""
    _write(tmp_path, {"topics": {"payments": {"bucket": "restricted"}}})
    provider = open_provider("json", CLUSTER, tmp_path, {})
    assert provider.locations() == {"s3://restricted"}
    with pytest.raises(ConfigurationError, match="topic 'clicks' has no place: name it in topics"):
        provider.location("clicks")


@pytest.mark.parametrize("relative", [True, False])
def test_the_tables_path_can_be_given(relative: bool, tmp_path: Path) -> None:
    """A relative path begins at the properties file; an absolute one is used unchanged."""
    (tmp_path / "conf").mkdir()
    path = _write(tmp_path / "conf", {"default": {"bucket": "archive"}}, "where.json")
    given = "where.json" if relative else str(path)
    provider = open_provider("json", CLUSTER, tmp_path / "conf", {"storage.service.endpoint.json.path": given})
    assert provider.location("any") == "s3://archive"


def test_every_problem_of_a_table_is_told_at_once(tmp_path: Path) -> None:
    """One start reports all problems of the file, each with the name of its entry."""
    _write(
        tmp_path,
        {
            "topics": {
                "a": {"bucket": "x"},
                "b": {"prefix": "only"},
                "c": "s3://bucket",
                "d": {"bucket": 5},
                "e": {"bucket": "okay", "prefix": "../up"},
            },
            "defaults": {},
        },
    )
    problems = _problems("json", tmp_path, {})
    assert len(problems) == 6
    for expected in (
        "'defaults'",
        "topics.a:",
        "topics.b ",
        "topics.c: there is no endpoint",
        "topics.d:",
        "topics.e:",
    ):
        assert any(expected in problem for problem in problems), expected


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "is not JSON"),
        (b"[" * 100_000, "is not JSON: it is nested more than"),
        (b"[]", "is not a JSON object"),
        (b'{"default": {"bucket": "archive"}, "topics": []}', "topics is"),
    ],
)
def test_a_file_that_is_no_table_is_refused(content: bytes, said: str, tmp_path: Path) -> None:
    """The message reports text that is not JSON, or not an object."""
    (tmp_path / f"{CLUSTER}.endpoints.json").write_bytes(content)
    (problem,) = _problems("json", tmp_path, {})
    assert said in problem


def test_an_absent_table_names_the_key_for_another_path(tmp_path: Path) -> None:
    """The message for a missing file names the key that sets its path."""
    (problem,) = _problems("json", tmp_path, {})
    assert "cannot be read" in problem
    assert "storage.service.endpoint.json.path" in problem


def test_the_java_examples_file_is_understood(tmp_path: Path) -> None:
    """There are two buckets and a flag by topic: `pii` topics have one, all others the other."""
    path = _write(
        tmp_path,
        {
            "bucket_public": "open",
            "bucket_pii": "closed",
            "prefix": "archive/kafka",
            "topics": {"payments": {"pii": True}, "clicks": {"pii": False}},
        },
        f"{CLUSTER}.json",
    )
    provider = open_provider("json", CLUSTER, tmp_path, {"storage.service.endpoint.json.path": str(path)})
    assert provider.location("payments") == "s3://closed/archive/kafka"
    assert provider.location("clicks") == provider.location("other") == "s3://open/archive/kafka"


def test_a_java_file_that_its_own_provider_refuses_is_refused(tmp_path: Path) -> None:
    """A topic without its flag, a missing bucket and a foreign key are each named."""
    _write(tmp_path, {"bucket_pii": "closed", "prefix": "p", "topics": {"a": {}, "b": {"pii": "yes"}}, "default": {}})
    problems = _problems("json", tmp_path, {})
    assert len(problems) == 4
    for expected in ("bucket_public is missing", "'default'", "topics.a", "topics.b"):
        assert any(expected in problem for problem in problems), expected


def test_the_java_examples_class_is_refused_with_the_lines_to_write(tmp_path: Path) -> None:
    """The message for an operator who migrates has the name and the key that replace the class."""
    (problem,) = _problems(JAVA_CLASS, tmp_path, {})
    assert "use json" in problem
    assert "storage.service.endpoint.json.path=<path of its file>" in problem


@pytest.mark.parametrize(
    ("name", "said"), [("com.example.Provider", "module:Class"), ("yaml", "accepted are url, json")]
)
def test_an_unknown_provider_is_refused_with_what_is_accepted(name: str, said: str, tmp_path: Path) -> None:
    """The message for another Java class or a misspelt name lists the accepted names."""
    (problem,) = _problems(name, tmp_path, {})
    assert f"storage.service.endpoint.provider.class={name}" in problem
    assert said in problem


def test_an_operators_class_is_given_cluster_directory_and_properties(tmp_path: Path) -> None:
    """A dotted path names a class that receives all of them."""
    provider = open_provider(f"{__name__}:ByTeam", CLUSTER, tmp_path, {"team.bucket": "team"})
    assert provider.location("alpha") == f"s3://team-a/{CLUSTER}/{tmp_path.name}"
    assert len(provider.locations()) == 2


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ByTeam", "KeyError: 'team.bucket'"),
        ("NotDerived", "is no ts_common.endpoints.provider.EndpointProvider"),
        ("Absent", "cannot be loaded"),
        ("NamesNoStore", "write s3://bucket/base"),
    ],
)
def test_an_operators_class_that_cannot_serve_is_a_configuration_error(name: str, said: str, tmp_path: Path) -> None:
    """It is missing, fails, has half of the methods, or names no stores: each is rejected at the start."""
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        open_provider(f"{__name__}:{name}", CLUSTER, tmp_path, {})


S3 = "storage.service.endpoint.s3."


def test_options_of_the_properties_file_hold_for_every_provider(tmp_path: Path) -> None:
    """This includes the one URL, each of a table, and an operator's class without options."""
    said = {S3 + "storage.class": "STANDARD_IA", S3 + "region": "eu-west-1"}
    _write(tmp_path, {"default": {"bucket": "archive"}, "topics": {"payments": {"bucket": "restricted"}}})
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


def test_a_tables_endpoints_have_names_and_options_of_their_own(tmp_path: Path) -> None:
    """A topic chooses an endpoint by name, alone or with options that override it; null removes an outer option."""
    kms = {"server.side.encryption": "aws:kms", "kms.key.id": "alias/archive"}
    _write(
        tmp_path,
        {
            "endpoints": {"restricted": {"bucket": "restricted", "prefix": "p", "s3": kms}},
            "default": {"bucket": "archive", "s3": {"storage.class": None}},
            "topics": {
                "payments": "restricted",
                "audit": {"endpoint": "restricted", "s3": {"tags": {"team": "audit"}, "kms.key.id": None}},
            },
        },
    )
    provider = open_provider("json", CLUSTER, tmp_path, {S3 + "storage.class": "STANDARD_IA", S3 + "region": "r"})
    plain = Connection(region="r")
    storing = Storing(Encryption.SSE_KMS, kms_key_id="alias/archive", storage_class="STANDARD_IA")
    payments = Endpoint("s3://restricted/p", StorageOptions(plain, storing))
    of_audit = replace(storing, kms_key_id=None, tags=(("team", "audit"),))
    audit = Endpoint("s3://restricted/p", StorageOptions(plain, of_audit))
    default = Endpoint("s3://archive", StorageOptions(plain))
    assert [provider.endpoint(topic) for topic in ("payments", "audit", "x")] == [payments, audit, default]
    assert provider.endpoints() == {payments, audit, default}
    assert provider.locations() == {"s3://restricted/p", "s3://archive"}


def test_every_problem_of_a_tables_endpoints_and_options_is_told_at_once(tmp_path: Path) -> None:
    """Problems have the name of the entry; none contains a proxy's password."""
    _write(
        tmp_path,
        {
            "endpoints": {
                "restricted": {"bucket": "restricted", "s3": {"acl": "open"}},
                "gone": {"s3": {"proxy": "http://me:hunter2@proxy"}},
                "fine": {"bucket": "fine", "s3": {"server.side.encryption": "AES256"}},
            },
            "default": "restrictet",
            "topics": {
                "a": {"endpoint": "fine", "s3": {"kms.key.id": "k"}},
                "b": {"endpoint": "fine", "bucket": "too"},
                "c": {"bucket": "okay", "s3": ["acl"]},
                "d": "restricted",
                "e": 5,
            },
        },
    )
    problems = _problems("json", tmp_path, {})
    assert "hunter2" not in str(problems)
    for expected in (
        "endpoints.restricted.s3.acl=open: accepted are private",
        'endpoints.gone is {"s3": "..."}: accepted is {"bucket"',
        "default: there is no endpoint 'restrictet'; did you mean restricted?",
        "topics.a.s3.kms.key.id: it needs server.side.encryption=aws:kms",
        "topics.b is ",
        "topics.c.s3 is a list, not an object of options",
        "topics.e is 5: accepted are",
    ):
        assert any(problem.startswith(expected) for problem in problems), expected
    assert len(problems) == 7


def test_a_directory_takes_no_options_of_s3(tmp_path: Path) -> None:
    """An operator who sets encryption for a directory would not get it."""
    (problem,) = _problems("url", tmp_path, {"storage.service.endpoint.url": "file:///archive", S3 + "acl": "private"})
    assert problem.startswith("storage.service.endpoint.url: ")
    assert "drop them" in problem


@pytest.mark.parametrize(
    "content",
    [
        {"default": {"bucket": "b", "proxy": "http://me:hunter2@proxy"}},
        {"default": {"bucket": "b", "prefix": 5, "s3": {"proxy": "http://me:hunter2@proxy"}}},
        {"default": {"endpoint": "a", "proxy": "http://me:hunter2@proxy"}, "endpoints": {"a": {"bucket": "bucket"}}},
        {"default": {"bucket": "bucket", "s3": ["proxy=http://me:hunter2@proxy"]}},
        {"default": {"bucket": "bucket", "s3": "proxy=http://me:hunter2@proxy"}},
        {"default": {"bucket": "bucket"}, "endpoints": {"proxy": "http://me:hunter2@proxy"}},
        {"default": {"bucket": "bucket"}, "endpoints": "http://me:hunter2@proxy"},
        {"default": {"bucket": "bucket"}, "topics": {"proxy": "http://me:hunter2@proxy"}},
        {"default": {"bucket": "bucket"}, "topics": [{"proxy": "http://me:hunter2@proxy"}]},
        {"bucket_public": "p", "bucket_pii": "q", "prefix": "", "topics": {"t": {"proxy": "http://me:hunter2@proxy"}}},
    ],
)
def test_no_value_of_an_option_in_the_wrong_place_is_in_a_message(content: object, tmp_path: Path) -> None:
    """The option is one level too high, or under a key of another kind: its name is shown, but not its value."""
    _write(tmp_path, content)
    problems = _problems("json", tmp_path, {})
    assert problems
    assert "hunter2" not in str(problems)
