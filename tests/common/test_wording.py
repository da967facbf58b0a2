from ts_common.wording import clause, counted


def test_a_count_has_separators_and_a_plural() -> None:
    """Only one thing has no plural."""
    assert [counted(n, "segment") for n in (0, 1, 2, 2400)] == [
        "0 segments",
        "1 segment",
        "2 segments",
        "2,400 segments",
    ]


def test_a_foreign_text_continues_as_a_clause() -> None:
    """S3's messages end with a full stop, and a way out follows."""
    assert [clause(text) for text in ("Access Denied.", "no\n", "", "v1.2")] == ["Access Denied", "no", "", "v1.2"]
