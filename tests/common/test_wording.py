from ts_common.wording import counted


def test_a_count_has_separators_and_a_plural() -> None:
    """Only one thing has no plural."""
    assert [counted(n, "segment") for n in (0, 1, 2, 2400)] == [
        "0 segments",
        "1 segment",
        "2 segments",
        "2,400 segments",
    ]
