"""File names of keys: no key has the name of a driver's own file, and each name leads back to its key."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ts_common.store.file_names import WRITING, belongs_to_listing, file_name, part_of

PART = st.text("ab.-~", min_size=1, max_size=4).filter(lambda part: part not in {".", ".."})
KEY = st.lists(PART, min_size=1, max_size=3).map("/".join)


@given(KEY)
def test_a_file_name_leads_back_to_its_key(key: str) -> None:
    """Part by part, and no part has the name of a hidden file."""
    names = file_name(key).split("/")
    assert "/".join(part_of(name) for name in names) == key
    assert not any(name.startswith(".") and not name.startswith("..") for name in names)


@pytest.mark.parametrize(
    ("key", "name"),
    [("t-0/0.log", "t-0/0.log"), (".meta/a", "..meta/a"), ("t/.put-x", "t/..put-x"), ("...", "...."), (".t/", "..t/")],
)
def test_only_a_dot_at_the_start_of_a_part_is_doubled(key: str, name: str) -> None:
    """Files have the names of their keys otherwise, so that any tool can read them."""
    assert file_name(key) == name


@pytest.mark.parametrize("name", [f"{WRITING}0123-a", ".meta", ".lock", ".nfs0001", ".", "..."])
def test_hidden_files_are_no_keys(name: str) -> None:
    """Files of the driver, those of other programs, and a name that only a missing key could have."""
    assert part_of(name) == ""


@given(st.lists(KEY, max_size=6), st.one_of(st.just(""), KEY, KEY.map("{}/".format)), st.one_of(st.just(""), KEY))
@example(["a/b", "a/c"], "", "a/b")
@example(["a/b/c"], "a/b", "")
def test_a_walk_through_directories_finds_the_keys_of_a_listing(keys: list[str], prefix: str, start_after: str) -> None:
    """A directory belongs to a listing if one of its keys may, so that no key is missed."""
    for key in keys:
        listed = key.startswith(prefix) and key > start_after
        assert belongs_to_listing(key, prefix, start_after) == listed
        if listed:
            above = [key[: at + 1] for at, sign in enumerate(key) if sign == "/"]
            assert all(belongs_to_listing(directory, prefix, start_after) for directory in above)


@pytest.mark.parametrize(
    ("directory", "prefix", "start_after"),
    [("b/", "a/", ""), ("ab/", "a/", ""), ("a/", "a/", "a0"), ("a/", "", "b"), ("a/b/", "a/", "a/c/d")],
)
def test_directories_without_keys_of_a_listing_are_not_entered(directory: str, prefix: str, start_after: str) -> None:
    """Otherwise each listing would read the whole store."""
    assert not belongs_to_listing(directory, prefix, start_after)
