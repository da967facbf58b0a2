"""The option `incarnation`: how it is written, and which directory it chooses."""

import pytest

from ts_common.archive.incarnations import Incarnations
from ts_common.archive.object_keys import ClusterKeys
from ts_common.errors import QueryError
from ts_reader.reading.incarnation_option import directory_of, is_topic_id, parse_incarnation

ONE, TWO = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAA-g"
KEYS = ClusterKeys("prod", 0)
BOTH = Incarnations("t").opened(ONE, 0, KEYS).opened(TWO, 86_400_000, KEYS)


@pytest.mark.parametrize(
    ("text", "parsed"),
    [("newest", "newest"), ("NEWEST", "newest"), ("oldest", "1"), ("1", "1"), ("007", "7"), (TWO, TWO)],
)
def test_words_numbers_and_topic_ids_are_accepted(text: str, parsed: str) -> None:
    """`oldest` is number 1."""
    assert parse_incarnation(text) == parsed


@pytest.mark.parametrize("text", ["", "0", "-1", "latest", ONE[:-1], f"{ONE}=", "1.5"])
def test_other_texts_are_rejected(text: str) -> None:
    """The message lists what is accepted."""
    with pytest.raises(ValueError, match="newest, oldest, a number"):
        parse_incarnation(text)
    assert not is_topic_id(text)


@pytest.mark.parametrize(("wanted", "directory"), [("newest", f"t~{TWO}"), ("1", "t"), ("2", f"t~{TWO}"), (ONE, "t")])
def test_each_incarnation_has_a_directory(wanted: str, directory: str) -> None:
    """The first one has the topic's own."""
    assert directory_of(BOTH, wanted) == directory


def test_an_unknown_incarnation_is_an_error_that_lists_the_others() -> None:
    """By number, topic id and time."""
    with pytest.raises(QueryError) as caught:
        directory_of(BOTH, "3")
    assert str(caught.value).endswith(
        f"1 {ONE}, first seen 1970-01-01 00:00:00 UTC; 2 {TWO}, first seen 1970-01-02 00:00:00 UTC"
    )


def test_a_topic_without_topic_ids_has_one_incarnation() -> None:
    """Number 1 and the newest are its plain directory."""
    none = Incarnations("t")
    assert directory_of(none, "newest") == directory_of(none, "1") == "t"
    for wanted in ("2", ONE):
        with pytest.raises(QueryError, match=r"only 1$"):
            directory_of(none, wanted)
