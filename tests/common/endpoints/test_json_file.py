from dataclasses import replace
from pathlib import Path

import pytest

from tests.common.endpoints.files import CLUSTER, S3, problems_of, write_file
from ts_common.endpoints.provider import open_provider
from ts_common.errors import ConfigurationError
from ts_common.store.options import Connection, Encryption, Endpoint, StorageOptions, Storing


def test_a_table_gives_each_topic_its_bucket_and_the_rest_the_default(tmp_path: Path) -> None:
    """Topics that the file names have their own endpoint, all others the default."""
    write_file(
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
    """Without a default, a topic that the file does not name has no endpoint, and the error names it."""
    write_file(tmp_path, {"topics": {"payments": {"bucket": "restricted"}}})
    provider = open_provider("json", CLUSTER, tmp_path, {})
    assert provider.locations() == {"s3://restricted"}
    with pytest.raises(ConfigurationError, match="topic 'clicks' has no endpoint: add it to topics"):
        provider.location("clicks")


@pytest.mark.parametrize("relative", [True, False])
def test_the_tables_path_can_be_given(relative: bool, tmp_path: Path) -> None:
    """A relative path begins at the directory of the properties file; an absolute path is used as it is."""
    (tmp_path / "conf").mkdir()
    path = write_file(tmp_path / "conf", {"default": {"bucket": "archive"}}, "where.json")
    given = "where.json" if relative else str(path)
    provider = open_provider("json", CLUSTER, tmp_path / "conf", {"storage.service.endpoint.json.path": given})
    assert provider.location("any") == "s3://archive"


def test_every_problem_of_a_table_is_reported_at_once(tmp_path: Path) -> None:
    """One start reports all problems of the file, each with the name of its entry."""
    write_file(
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
    problems = problems_of("json", tmp_path, {})
    assert len(problems) == 6
    for expected in (
        "defaults: unknown key; did you mean default?",
        "topics.a: ",
        "topics.b.bucket is missing; expected ",
        "topics.c: no endpoint 's3://bucket'",
        "topics.d.bucket is 5; expected a string",
        "topics.e: ",
    ):
        assert any(problem.startswith(expected) for problem in problems), expected


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
    """A file that is not JSON, or not an object, is rejected with that reason."""
    (tmp_path / f"{CLUSTER}.endpoints.json").write_bytes(content)
    (problem,) = problems_of("json", tmp_path, {})
    assert said in problem


def test_an_absent_table_names_the_key_for_another_path(tmp_path: Path) -> None:
    """The error of a missing file names the key that sets its path."""
    (problem,) = problems_of("json", tmp_path, {})
    assert "cannot read the file" in problem
    assert "storage.service.endpoint.json.path" in problem


def test_the_java_examples_file_is_understood(tmp_path: Path) -> None:
    """The form with two buckets works: topics with the flag `pii` use one, all others the other."""
    path = write_file(
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
    """A missing bucket, an unknown key, and a topic without a valid flag are all reported."""
    write_file(
        tmp_path, {"bucket_pii": "closed", "prefix": "p", "topics": {"a": {}, "b": {"pii": "yes"}}, "default": {}}
    )
    problems = problems_of("json", tmp_path, {})
    assert len(problems) == 4
    for expected in (
        "bucket_public is missing",
        "default: unknown key",
        "topics.a.pii is missing",
        "topics.b.pii is a string",
    ):
        assert any(expected in problem for problem in problems), expected


def test_a_tables_endpoints_have_names_and_options_of_their_own(tmp_path: Path) -> None:
    """A topic selects an endpoint by name; its own options override the endpoint's, and null removes one."""
    kms = {"server.side.encryption": "aws:kms", "kms.key.id": "alias/archive"}
    write_file(
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


def test_every_problem_of_a_tables_endpoints_and_options_is_reported_at_once(tmp_path: Path) -> None:
    """Each problem names its entry, and none contains a proxy's password."""
    write_file(
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
    problems = problems_of("json", tmp_path, {})
    assert "hunter2" not in str(problems)
    for expected in (
        "endpoints.restricted.s3.acl=open: accepted are private",
        "endpoints.gone.bucket is missing; expected ",
        "default: no endpoint 'restrictet'; did you mean restricted?",
        "topics.a.s3.kms.key.id: it needs server.side.encryption=aws:kms",
        "topics.b.bucket: unknown key; known keys are endpoint, s3",
        "topics.c.s3 is a list; expected an object",
        "topics.e is 5; expected ",
    ):
        assert any(problem.startswith(expected) for problem in problems), expected
    assert len(problems) == 7


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
    """An option at the wrong level is reported by its key, without its value."""
    write_file(tmp_path, content)
    problems = problems_of("json", tmp_path, {})
    assert problems
    assert "hunter2" not in str(problems)


def test_a_key_that_utf_8_cannot_represent_is_refused(tmp_path: Path) -> None:
    """JSON can escape half of a surrogate pair; such a key is a problem of the file and no crash."""
    (tmp_path / f"{CLUSTER}.endpoints.json").write_text('{"default": {"bucket": "okay", "\\ud800": 1}}')
    (problem,) = problems_of("json", tmp_path, {})
    assert problem == "default contains a key or a value that UTF-8 cannot represent; correct it"
