"""The person's records in the files that `tsctl restore` places on a broker."""

from pathlib import Path

import pytest

from tests.common.log_format.build import message
from tests.erased.canary import END, GONE, STAY, canary, put_erased, restored_canary
from tests.made_archive import MadeArchive
from tests.tsctl.restore.test_fetching import fetched, plan_of
from ts_common.archive.former_places import read_with_former
from ts_common.errors import CorruptData
from ts_common.log_format.framing import BatchHeader
from ts_reader.decode.columns import RecordColumns
from ts_reader.decode.segment_decoder import SegmentDecoder
from tsctl.restore.chain import read_batches
from tsctl.restore.markers import end_transactions
from tsctl.restore.planning import plan_partition


def decoded(files: dict[str, bytes]) -> tuple[list[int], bytes, list[BatchHeader]]:
    """Return the offsets, the columns' bytes and the headers of all `.log` files."""
    offsets, data, headers = list[int](), b"", list[BatchHeader]()
    for name in sorted(files):
        if name.endswith(".log"):
            headers += [header for header, _ in read_batches([files[name]], len(files[name]), lambda _: None)]
            for columns in SegmentDecoder().decode([files[name]]):
                offsets += columns.offsets.tolist()
                data += _bytes_of(columns)
    return offsets, data, headers


def _bytes_of(columns: RecordColumns) -> bytes:
    assert columns.keys is not None
    assert columns.values is not None
    assert columns.headers is not None
    return b"".join(
        each.data.tobytes() for each in (columns.keys, columns.values, columns.headers.names, columns.headers.values)
    )


def test_no_file_has_a_record_of_the_person(tmp_path: Path) -> None:
    """A list that is put after the plan counts too; the producer's sequences continue in each batch."""
    person = canary(tmp_path / "archive")
    plan = plan_of(person.archive)
    _, before = fetched(person.archive, plan, tmp_path / "before")
    assert person.person in decoded(before)[1]
    person.erase()
    _, after = fetched(person.archive, plan, tmp_path / "after")
    offsets, data, headers = decoded(after)
    assert offsets == STAY
    assert person.person not in data
    assert not any(person.person in each for each in after.values())
    places = [(each.base_offset, each.last_offset, each.base_sequence, each.producer_id) for each in headers]
    assert places == [(base, base + 9, base, 7) for base in range(0, END, 10)]


def test_a_former_directory_has_a_list_of_its_own(tmp_path: Path) -> None:
    """Each file obeys the list of the directory that it is from, by the epochs that its batches have there."""
    restored = restored_canary(tmp_path / "archive")
    later = restored.archive
    part = plan_partition(later.store, read_with_former(later.store, later.partition("t")), None, None)
    plan = part.finished([1], end_transactions([part])[part.keys.partition])
    offsets, data, _ = decoded(fetched(later, plan, tmp_path / "files")[1])
    assert offsets == [*STAY, *(each for each in range(END, 220) if each != 203)]
    assert restored.person not in data


def test_old_messages_are_left_out_or_refused(tmp_path: Path) -> None:
    """One that is not compressed is left out; a compressed set cannot be written again."""
    archive = MadeArchive(tmp_path / "archive")
    archive.put_segment("t", 0, b"".join(message(1, each, b"v%d" % each) for each in range(10)))
    archive.commit("t", 10, epochs=((-1, 0),))
    put_erased(archive.store, archive.partition("t"), [(5, 7, -1)])
    assert decoded(fetched(archive, plan_of(archive), tmp_path / "files")[1])[0] == [0, 1, 2, 3, 4, 7, 8, 9]


def test_a_lost_list_places_nothing(tmp_path: Path) -> None:
    """A restore without the list that `log.start` names would bring the person back."""
    person = canary(tmp_path / "archive")
    plan = plan_of(person.archive)
    person.erase(GONE, number=3)
    person.archive.store.delete([person.keys.erased + "3.bin"])
    with pytest.raises(CorruptData, match="do not show list 3"):
        fetched(person.archive, plan, tmp_path / "files")
