from pathlib import Path

import pytest

from ts_common.archive.incarnations import Incarnations, read_incarnations
from ts_common.archive.object_keys import ClusterKeys
from ts_common.errors import CorruptData
from ts_common.store.factory import open_store

KEYS = ClusterKeys("prod", 5)
FIRST = Incarnations("t").opened("A", 1, KEYS, made=7)
BOTH = FIRST.opened("B", 2, KEYS)


def test_the_first_incarnation_has_the_plain_directory() -> None:
    """A later one has a directory of its own, and readers use the newest."""
    assert Incarnations("t").newest_directory == "t"
    assert Incarnations("t").newest_id is None
    assert (FIRST.newest_directory, FIRST.newest_id) == ("t", "A")
    assert (BOTH.newest_directory, BOTH.newest_id) == ("t~B", "B")


def test_an_adopted_id_belongs_to_the_newest_incarnation() -> None:
    """The incarnation keeps its directory and the id that readers use."""
    adopted = BOTH.adopted("C", 3)
    assert (adopted.newest_directory, adopted.newest_id) == ("t~B", "B")
    assert adopted.are_of_one_life("B", "C")
    assert not adopted.are_of_one_life("A", "C")
    assert not adopted.are_of_one_life("C", "absent")
    with pytest.raises(ValueError, match="has no incarnation"):
        Incarnations("t").adopted("A", 1)


def test_a_list_is_read_as_it_was_written(tmp_path: Path) -> None:
    """A store without the object has an empty list, which a conditional write creates."""
    with open_store(tmp_path.as_uri()) as store:
        assert read_incarnations(store, KEYS, "t") == (Incarnations("t"), None)
        written = store.put(KEYS.incarnations("t"), BOTH.encode())
        assert read_incarnations(store, KEYS, "t") == (BOTH, written.etag)
    found = BOTH.find("A")
    assert found is not None
    assert (found.first_seen, found.made) == (1, 7)
    assert BOTH.find("absent") is None


@pytest.mark.parametrize("directory", ["u", "t~", "t~B/../u", "t~B-0/", "../t", "T~B"])
def test_a_directory_of_another_topic_is_damage(directory: str) -> None:
    """Such a directory would lead a reader to objects of another topic."""
    data = BOTH.encode().replace(b'"t~B"', f'"{directory}"'.encode())
    with pytest.raises(CorruptData, match="is not a directory of t"):
        Incarnations.decode(data, "the/key", topic="t")
