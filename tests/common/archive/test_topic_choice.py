"""Names of topics, and regular expressions over whole names."""

import pytest

from ts_common.archive.topic_choice import as_pattern, topic_chooser


def test_a_text_is_a_name_or_a_pattern_over_whole_names() -> None:
    """A dot belongs to names: `a.b` is a name, and a pattern only if it is written as one."""
    topics = ("a.b", "axb", "orders", "orders-eu", "old-orders")

    def chosen(*texts: str) -> list[str]:
        return [name for name in topics if topic_chooser(texts)(name)]

    assert chosen() == []
    assert chosen("a.b") == ["a.b"]
    assert chosen(as_pattern("a.b")) == ["a.b", "axb"]
    assert chosen("orders.*", "axb") == ["axb", "orders", "orders-eu"]
    assert chosen("(" * 50 + r"orders\(?" + ")" * 50, r"(a)|(\(*)" * 60) == ["orders"]
    assert as_pattern("orders.*") == "orders.*"


@pytest.mark.parametrize("text", ["(", "a{2,1}", "x{99999999999999999999}", "(" * 51 + ")" * 51, "(" * 20_000, ""])
def test_a_text_that_is_no_pattern_is_refused_or_chooses_no_topic(text: str) -> None:
    """An empty text matches no name, as names are not empty."""
    if text:
        with pytest.raises(ValueError, match="is not a regular expression"):
            topic_chooser([text])
    else:
        assert not topic_chooser([text])("orders")
