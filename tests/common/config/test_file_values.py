"""Values of YAML files as people write them."""

import pytest

from ts_common.config.file_values import check_store, listed, parse_milliseconds, parse_seconds, parse_share, parse_size


def test_sizes_and_times_are_read_as_people_write_them() -> None:
    """With their units."""
    assert [parse_size(text) for text in ("1", "2KiB", "3 mib", "4GiB", 5)] == [1, 2048, 3 << 20, 4 << 30, 5]
    assert [parse_seconds(text) for text in ("90s", "1m", "2 h", "1d")] == [90, 60, 7200, 86_400]
    assert parse_milliseconds("90s") == 90_000
    for text in ("MiB", "-1", "1.5GiB", "1MB", "", True):
        with pytest.raises(ValueError, match="no size"):
            parse_size(text)
    for text in ("1", "h", "-1s", ""):
        with pytest.raises(ValueError, match="no time"):
            parse_seconds(text)


def test_shares_are_percentages() -> None:
    """More than nothing, and no more than all."""
    assert [parse_share(text) for text in ("50%", "0.5 %", "100%")] == [0.5, 0.005, 1]
    for text in ("0%", "101%", "0.5", "-1%", 50, "%"):
        with pytest.raises(ValueError, match="no share"):
            parse_share(text)


def test_a_value_that_grows_when_it_is_written_out_is_not() -> None:
    """Aliases of YAML make a few bytes a text that no memory has."""
    bomb: list[object] = ["x"]
    for _ in range(60):
        bomb = [bomb, bomb]
    for parse in (parse_size, parse_milliseconds, parse_share):
        with pytest.raises(ValueError, match="it is no"):
            parse(bomb)


def test_one_text_is_a_list_of_it() -> None:
    """Other values stay as they are, for the message about them."""
    assert (listed("a"), listed(["a", "b"]), listed(5)) == (["a"], ["a", "b"], 5)


def test_the_url_of_a_store_is_checked_without_a_request() -> None:
    """The message begins with the label."""
    assert check_store("s3://bucket/base") == "s3://bucket/base"
    with pytest.raises(ValueError, match="location: 'bucket/base' is not a store URL"):
        check_store("bucket/base", label="location: ")
