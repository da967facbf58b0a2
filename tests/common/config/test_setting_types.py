from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from ts_common.config.setting_types import HostNames, IoClass, Leadership, Patterns, Reporter

JAVA = "com.pinterest.kafka.tieredstorage.uploader.leadership."


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Leadership, JAVA + "ZookeeperLeadershipWatcher", "zookeeper"),
        (Leadership, JAVA + "KRaftLeadershipWatcher", "kraft"),
        (Leadership, "team.leadership:Watcher", "team.leadership:Watcher"),
        (Reporter, "statsd", "statsd"),
        (Reporter, "team.metrics:Reporter", "team.metrics:Reporter"),
        (IoClass, " Best-Effort:0 ", "best-effort:0"),
        (IoClass, "none", "none"),
        (HostNames, " Pages.example., .Internal.example ,", ("pages.example", ".internal.example")),
    ],
)
def test_a_text_is_read_as_a_value(kind: Any, text: str, value: object) -> None:
    """Names of the Java uploader are translated; case, spaces and final dots do not matter where none can."""
    assert TypeAdapter(kind).validate_python(text) == value


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (Leadership, "com.example.Watcher", "expected zookeeper, kraft or module:Class"),
        (Reporter, "team.metrics.Reporter", "expected graphite, statsd or module:Class"),
        (IoClass, "best-effort:8", "expected best-effort:0 to best-effort:7, idle or none"),
        (Patterns, "good,(", r"'\(' is not a regular expression"),
        (HostNames, "a:80", "is not a host name"),
        (HostNames, "*.example", "is not a host name"),
        (HostNames, "http://a", "is not a host name"),
        (HostNames, "a b", "is not a host name"),
    ],
)
def test_a_text_that_is_rejected_names_what_is_accepted(kind: Any, text: str, expected: str) -> None:
    """The message contains the accepted values or the form of one."""
    with pytest.raises(ValidationError, match=expected):
        TypeAdapter(kind).validate_python(text)


def test_patterns_are_separated_by_commas() -> None:
    """Spaces around a pattern and empty parts are ignored."""
    assert [p.pattern for p in TypeAdapter(Patterns).validate_python(" a.* ,, b")] == ["a.*", "b"]
