"""Repairs from the broker's files, by bytes (protocol rule 13)."""

import json
from collections.abc import Callable
from itertools import pairwise

import pytest

from tests.made_archive import batches
from tests.made_wrong_indexes import CASES, IndexCase
from tests.tsctl.running import runner
from tests.uploader.local_directory import CLUSTER, KEYS, TP, LocalDirectory
from ts_common.archive.catalog import read_catalog
from ts_common.archive.commit import Commit, Lineage, LogStart, encode_log_start
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.plan import ReadRange
from ts_common.archive.repair_requests import Damage, Outcome, RepairAnswer, RepairRequest, answer_key
from ts_common.archive.view import open_view
from ts_common.errors import ObjectNotFound, SegmentChanged
from ts_common.store.contract import ObjectInfo, ObjectStore
from ts_common.store.wrappers.wrapped import WrappedStore
from ts_uploader.messages.observations import Leadership
from ts_uploader.messages.results import FencedLeaderEpoch
from ts_uploader.messages.tasks import Position, Repair, Ship
from ts_uploader.retention.topic_retention import TopicRetention
from ts_uploader.shipping.repairer import Repairer
from ts_uploader.shipping.uploader import Uploader

EPOCH = 3
LEADERSHIP = Leadership(EPOCH, None, 0)
ID = "1700000000000-1a2b3c4d"
LINE = EpochHistory(((EPOCH, 0),))


class Lab:
    """A broker's segments `[0, 10) [10, 20) [20, 30)` and the archive of them, which a test damages."""

    lineage: Lineage | None = None

    def __init__(self, store: ObjectStore, local: LocalDirectory) -> None:
        self.store = store
        self.local = local
        self.rolled(0, 10, 20, 30)
        local.epochs((EPOCH, 0))
        self.commit()
        store.put(KEYS.log_start, encode_log_start(0))
        for base in (0, 10, 20):
            self.uploader().ship(self.ship(base))

    def rolled(self, *bounds: int) -> None:
        """Write the broker's segments with these bounds; the last is the base of the active one."""
        for base, end in pairwise(bounds):
            self.local.write(base, batches(*((low, low + 5) for low in range(base, end, 5)), epoch=EPOCH))
        self.local.write(bounds[-1], b"")

    def commit(self, epoch: int = EPOCH) -> None:
        commit = Commit(20, 30, epoch, LINE, 30, None, 1, 0, "n", lineage=self.lineage)
        self.store.put(KEYS.commit, commit.encode())
        if self.lineage is not None:
            self.store.put(KEYS.log_start, LogStart(0, self.lineage).encode())

    def uploader(self) -> Uploader:
        return Uploader(lambda _: self.store, lambda _: TopicRetention())

    def ship(self, base: int) -> Ship:
        listing = self.local.listing()
        following = next(other for other in listing.bases if other > base)
        return Ship(TP, 0, LEADERSHIP, KEYS, listing, base, following, LINE, 30, seen=True, lineage=self.lineage)

    def repair(
        self, damage: Damage, start: int, end: int, key: str | None = None, directory: str = "t-0"
    ) -> RepairAnswer:
        """Handle a request as the agent does; return the answer in the store."""
        request = RepairRequest(
            ID, TP.topic, TP.partition, directory, damage, start, end, key, None, None, 1, "operator"
        )
        listing = self.local.listing()
        bases = [base for base in listing.bases[:-1] if base < end]
        ships = [ship for ship in map(self.ship, bases) if ship.next_base > start]
        position = Position(KEYS, 0, 30, 20, LINE, None, None, lineage=self.lineage)
        lowest = max(start, listing.bases[0])
        task = Repair(TP, 0, LEADERSHIP, request, position, listing, tuple(ships), lowest)
        done = Repairer(CLUSTER, 1, lambda _: self.store, self.uploader()).repair(task)
        key = answer_key(CLUSTER, ID)
        answer = RepairAnswer.decode(self.store.get(key)[0], key)
        self.store.delete([key])
        assert (answer.outcome, answer.reason) == (done.outcome, done.reason)
        return answer

    def damage(self, name: SegmentName, change: Callable[[bytes], bytes]) -> str:
        """Overwrite an object in place, with the metadata that it has; return its key."""
        key = KEYS.segment(name)
        self.store.put(key, change(self.store.get(key)[0]), metadata=self.store.head(key).metadata)
        return key

    def read(self) -> list[tuple[int, int, str]]:
        """What readers read: the ranges, each with the name of its one object; its bytes are whole."""
        view = open_view(self.store, read_catalog(self.store, KEYS))
        found = []
        for step in view.plan(view.start, view.end):
            assert isinstance(step, ReadRange)
            (copy,) = step.copies
            assert self.store.get(copy.key)[0] in self.files()
            found.append((step.start, step.end, copy.segment.name.stem[18:]))
        return found

    def files(self) -> list[bytes]:
        return [path.read_bytes() for path in self.local.path.glob("*.log")]


@pytest.fixture
def lab(store: ObjectStore, local: LocalDirectory) -> Lab:
    return Lab(store, local)


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def short(data: bytes) -> bytes:
    return data[:-7]


def name_in(key: str) -> SegmentName:
    """Return the name of the segment that a key is one of."""
    parsed = SegmentName.parse(key.removeprefix(KEYS.prefix))
    assert parsed is not None
    return parsed[0]


@pytest.mark.parametrize("change", [flipped, short, lambda _: b""], ids=["in place", "cut short", "emptied"])
def test_a_damaged_object_is_replaced_again_and_again(lab: Lab, change: Callable[[bytes], bytes]) -> None:
    """The plain name by a variant, the variant by `.r1`, that by `.r2`. Readers read the last; all stay."""
    name = SegmentName(10)
    for suffix in ("", ".r1", ".r2"):
        key = lab.damage(name, change)
        bad = lab.store.get(key)[0]
        answer = lab.repair(Damage.DAMAGED, 10, 20, key)
        assert answer.outcome is Outcome.REPAIRED
        (new,) = answer.objects
        name = name_in(new)
        assert name.stem.endswith(f"{name.crc32c:08x}{suffix}")
        assert lab.store.get(key)[0] == bad
        assert lab.read() == [(0, 10, "00"), (10, 20, name.stem[18:]), (20, 30, "20")]
        assert lab.repair(Damage.DAMAGED, 10, 20, new).outcome is Outcome.NOTHING_TO_DO


def test_a_copy_counts_by_its_bytes_and_not_by_its_metadata(lab: Lab) -> None:
    """The repair of an object was damaged in place: a second request for the same object puts another one."""
    key = lab.damage(SegmentName(10), flipped)
    (variant,) = lab.repair(Damage.DAMAGED, 10, 20, key).objects
    assert lab.repair(Damage.DAMAGED, 10, 20, key).objects == (variant,)
    lab.damage(name_in(variant), flipped)
    assert lab.repair(Damage.DAMAGED, 10, 20, key).objects == (variant.replace(".log", ".r1.log"),)


@pytest.mark.parametrize(
    "change",
    [{"ts-time-max": "5"}, {"ts-time-min": "999999999"}, {"ts-epochs": "99:10"}, {"ts-control": "7"}, {"ts-end": "10"}],
    ids=str,
)
def test_metadata_that_is_not_that_of_the_bytes_is_damage(
    lab: Lab, change: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    """Readers skip the object by its metadata, in silence. The good copy has that of the leader's file."""
    key = KEYS.segment(SegmentName(10))
    fields = dict(lab.store.head(key).metadata)
    lab.store.put(key, lab.store.get(key)[0], metadata={**fields, **change})
    answer = lab.repair(Damage.DAMAGED, 10, 20, key)
    assert answer.outcome is Outcome.REPAIRED
    (variant,) = answer.objects
    assert variant != key
    copied = dict(lab.store.head(variant).metadata)
    del copied["ts-shipped"], fields["ts-shipped"]
    assert copied == {**fields, "ts-replaces": SegmentName(10).stem}
    assert [name for _, _, name in lab.read()] == ["00", name_in(variant).stem[18:], "20"]
    place = (
        "t",
        "--url",
        lab.store.location,
        "--cluster",
        CLUSTER.cluster,
        "--entropy-bits",
        str(CLUSTER.entropy_bits),
    )
    run = runner(capfd)
    assert len(run("cat", *place, "--from", "@1012", "--json").out.splitlines()) == 18
    found = json.loads(run("verify", *place, "--depth", "full", "--json").out)["findings"]
    assert [each["code"] for each in found if each["key"] in {key, variant} and each["severity"] != "information"] == []


@pytest.mark.parametrize("made", CASES)
def test_metadata_that_names_a_wrong_index_is_damage(lab: Lab, made: Callable[[int, int], IndexCase]) -> None:
    """Readers omit records or return aborted ones by the index, and the good copy has the index of the leader."""
    case = made(10, EPOCH)
    name, key = SegmentName(10), KEYS.segment(SegmentName(10))
    lab.store.delete([key])
    lab.local.write(10, case.log)
    (lab.local.path / f"{name.stem}{case.suffix}").write_bytes(case.right)
    lab.uploader().ship(lab.ship(10))
    assert lab.repair(Damage.DAMAGED, 10, 20, key).outcome is Outcome.NOTHING_TO_DO
    case.put(lab.store, KEYS, case.wrong)
    answer = lab.repair(Damage.DAMAGED, 10, 20, key)
    assert answer.outcome is Outcome.REPAIRED
    (variant,) = answer.objects
    copied = dict(lab.store.head(variant).metadata)
    del copied["ts-shipped"]
    assert copied == {**case.metadata(case.right), "ts-replaces": name.stem}
    assert lab.store.get(KEYS.segment(name_in(variant), case.suffix))[0] == case.right
    assert [stem for _, _, stem in lab.read()] == ["00", name_in(variant).stem[18:], "20"]


def test_another_segments_object_under_a_name_is_replaced(lab: Lab) -> None:
    """Its bytes and its metadata fit each other, and its epochs begin at another offset than its name."""
    key, other = (KEYS.segment(SegmentName(base)) for base in (10, 20))
    lab.store.put(key, lab.store.get(other)[0], metadata=lab.store.head(other).metadata)
    (new,) = lab.repair(Damage.DAMAGED, 10, 20, key).objects
    assert lab.read() == [(0, 10, "00"), (10, 20, name_in(new).stem[18:]), (20, 30, "20")]


def test_an_end_far_too_great_has_no_other_segment_put_again(lab: Lab) -> None:
    """The end is in the damaged object's metadata, and a repair must not double the archive."""
    key = KEYS.segment(SegmentName(0))
    damaged = {**lab.store.head(key).metadata, "ts-end": str(2**62)}
    lab.store.put(key, flipped(lab.store.get(key)[0]), metadata=damaged)
    answer = lab.repair(Damage.DAMAGED, 0, 2**62, key)
    assert answer.outcome is Outcome.REPAIRED
    assert [name_in(put).base for put in answer.objects] == [0]
    assert [(start, end) for start, end, _ in lab.read()] == [(0, 10), (10, 20), (20, 30)]


@pytest.mark.parametrize(
    ("change", "put"), [(lambda _: b"", [0, 20]), (flipped, [0, 10, 20])], ids=["emptied", "whole"]
)
def test_what_another_leaders_segment_inside_a_damaged_one_lacks_is_put(
    lab: Lab, change: Callable[[bytes], bytes], put: list[int]
) -> None:
    """The next base is not the end of the damaged object `[0, 30)`: `[20, 30)` is nowhere else."""
    other = Lab.__new__(Lab)
    other.store, other.local = lab.store, LocalDirectory(lab.local.log_dir / "other")
    other.local.epochs((EPOCH, 0))
    other.rolled(0, 30, 40)
    other.uploader().ship(other.ship(0))
    lab.store.delete([KEYS.segment(SegmentName(base)) for base in (0, 20)])
    (variant,) = [info.key for info in lab.store.list(KEYS.prefix) if info.key.endswith(".log") and ".e" in info.key]
    lab.damage(name_in(variant), change)
    answer = lab.repair(Damage.DAMAGED, 0, 30, variant)
    assert (answer.outcome, [name_in(key).base for key in answer.objects]) == (Outcome.REPAIRED, put)
    assert [(start, end) for start, end, _ in lab.read()] == [(0, 10), (10, 20), (20, 30)]


def test_a_deleted_object_gets_its_plain_name_again(lab: Lab) -> None:
    """With the same bytes; a second request finds nothing to do."""
    key = KEYS.segment(SegmentName(10))
    before = lab.store.get(key)[0]
    lab.store.delete([key])
    answer = lab.repair(Damage.MISSING, 10, 20)
    assert (answer.outcome, answer.objects) == (Outcome.REPAIRED, (key,))
    assert lab.store.get(key)[0] == before
    assert lab.repair(Damage.MISSING, 10, 20).outcome is Outcome.NOTHING_TO_DO


def test_u44_below_the_lineage_and_below_log_start_a_plain_name_is_not_used_again(lab: Lab) -> None:
    """A deletion plan can still have that name. What ends below `log.start` stays away."""
    lab.lineage = Lineage(EPOCH, 5, 20)
    lab.commit()
    for base in (10, 20):
        lab.store.delete([KEYS.segment(SegmentName(base))])
    answer = lab.repair(Damage.MISSING, 10, 30)
    assert [key.removeprefix(KEYS.prefix)[18:23] for key in answer.objects] == ["10.e3", "20.lo"]
    lab.store.put(KEYS.log_start, LogStart(25, lab.lineage).encode())
    lab.store.delete([KEYS.segment(SegmentName(base)) for base in (0, 20)])
    answer = lab.repair(Damage.MISSING, 0, 10)
    assert (answer.outcome, answer.objects) == (Outcome.NOTHING_TO_DO, ())
    assert "log.start is 25" in answer.reason
    (key,) = lab.repair(Damage.MISSING, 25, 30).objects
    assert key.removeprefix(KEYS.prefix)[18:23] == "20.e3"


def test_while_log_start_is_missing_nothing_is_put_back(lab: Lab) -> None:
    """Retention may have released the offsets: their records would be back, with a hole above."""
    lab.store.delete([KEYS.log_start, *(KEYS.segment(SegmentName(base)) for base in (0, 10))])
    names = [info.key for info in lab.store.list()]
    with pytest.raises(SegmentChanged, match=r"log\.start is missing"):
        lab.repair(Damage.MISSING, 0, 10)
    assert [info.key for info in lab.store.list()] == names
    lab.store.put(KEYS.log_start, encode_log_start(20))
    assert lab.repair(Damage.MISSING, 0, 10).outcome is Outcome.NOTHING_TO_DO


def test_the_leaders_segments_replace_a_damaged_one_with_other_bounds(lab: Lab) -> None:
    """Two leaders roll at different offsets. The part below the leader's log start is named, and stays damaged."""
    lab.local.unlink(0, 10, 20)
    lab.rolled(15, 25, 30)
    key = lab.damage(SegmentName(10), flipped)
    answer = lab.repair(Damage.DAMAGED, 10, 20, key)
    assert answer.outcome is Outcome.IN_PART
    assert "offsets [10, 15): below the leader's log start (15), so no broker has them" in answer.reason
    view = open_view(lab.store, read_catalog(lab.store, KEYS))
    steps = [(step.start, step.end, step.copies[0].base) for step in view.plan(0, 30) if isinstance(step, ReadRange)]
    assert steps == [(0, 10, 0), (10, 15, 10), (15, 25, 15), (25, 30, 20)]


def test_below_the_leaders_log_start_nothing_can_be_done(lab: Lab) -> None:
    """The answer names the offset, and no object is put."""
    lab.local.unlink(0, 10)
    lab.store.delete([KEYS.segment(SegmentName(10))])
    answer = lab.repair(Damage.MISSING, 10, 20)
    assert (answer.outcome, answer.objects) == (Outcome.IMPOSSIBLE, ())
    assert "below the leader's log start (20)" in answer.reason


def test_a_file_that_is_damaged_on_the_broker_too_replaces_nothing(lab: Lab) -> None:
    """Readers keep what is left of the object, and another replica can lead."""
    key = lab.damage(SegmentName(10), flipped)
    lab.local.write(10, flipped((lab.local.path / f"{10:020d}.log").read_bytes()))
    answer = lab.repair(Damage.DAMAGED, 10, 20, key)
    assert (answer.outcome, answer.objects) == (Outcome.IMPOSSIBLE, ())
    assert "the leader's file is damaged too" in answer.reason


def test_a_request_that_names_something_else_changes_nothing(lab: Lab) -> None:
    """Another partition's object, a whole object, another incarnation, offsets that are not committed."""
    names = [info.key for info in lab.store.list()]
    whole = KEYS.segment(SegmentName(10))
    assert lab.repair(Damage.DAMAGED, 10, 20, KEYS.commit).outcome is Outcome.IMPOSSIBLE
    assert lab.repair(Damage.DAMAGED, 10, 20, whole).outcome is Outcome.NOTHING_TO_DO
    assert lab.repair(Damage.MISSING, 10, 20, directory="t~AbC-0").outcome is Outcome.IMPOSSIBLE
    assert lab.repair(Damage.MISSING, 30, 99).outcome is Outcome.NOTHING_TO_DO
    assert lab.repair(Damage.MISSING, 0, 30).outcome is Outcome.NOTHING_TO_DO
    assert lab.repair(Damage.MISSING, 0, 30, whole).outcome is Outcome.NOTHING_TO_DO
    assert [info.key for info in lab.store.list()] == names


def test_only_what_lacks_is_read_for_a_request_of_the_whole_partition(lab: Lab) -> None:
    """Any identity that may write to the bucket can send one: it must not cost the broker's disk."""
    lab.store.delete([KEYS.segment(SegmentName(10))])
    (key,) = lab.repair(Damage.MISSING, 0, 2**62).objects
    assert key == KEYS.segment(SegmentName(10))
    lab.damage(SegmentName(20), flipped)
    (key,) = lab.repair(Damage.DAMAGED, 0, 2**62, KEYS.segment(SegmentName(20))).objects
    assert name_in(key).base == 20


def test_a_segment_that_the_commit_names_is_put_back_though_a_copy_has_its_offsets(lab: Lab) -> None:
    """No offset lacks then; `tsctl verify` reports that the object is missing."""
    other = Lab.__new__(Lab)
    other.store, other.local = lab.store, LocalDirectory(lab.local.log_dir / "other")
    other.local.epochs((EPOCH, 0))
    other.rolled(15, 30, 40)
    other.uploader().ship(other.ship(15))
    key = KEYS.segment(SegmentName(20))
    lab.store.delete([key])
    assert lab.repair(Damage.MISSING, 20, 21).outcome is Outcome.NOTHING_TO_DO
    answer = lab.repair(Damage.MISSING, 20, 21, key)
    assert (answer.outcome, answer.objects) == (Outcome.REPAIRED, (key,))


class Moving(WrappedStore):
    """A store whose commit changes while a `.log` is put."""

    def __init__(self, inner: ObjectStore, change: Callable[[], None]) -> None:
        super().__init__(inner, threads=1)
        self._change = change

    def put(self, key: str, *arguments: object, **named: object) -> ObjectInfo:
        if key.endswith(".log"):
            self._change()
        return super().put(key, *arguments, **named)  # type: ignore[arg-type]


@pytest.mark.parametrize("epoch", [EPOCH, EPOCH + 1])
def test_a_lineage_that_begins_meanwhile_leaves_the_request_without_an_answer(lab: Lab, epoch: int) -> None:
    """The name may no longer be allowed: the request is handled again, by whichever agent leads then."""
    lab.store.delete([KEYS.segment(SegmentName(10))])
    inner = lab.store

    def change() -> None:
        other = Lab.__new__(Lab)
        other.store, other.lineage = inner, Lineage(epoch, 15, 30)
        other.commit(epoch)

    lab.store = Moving(inner, change)
    with pytest.raises(SegmentChanged if epoch == EPOCH else FencedLeaderEpoch):
        lab.repair(Damage.MISSING, 10, 20)
    with pytest.raises(ObjectNotFound):
        inner.get(answer_key(CLUSTER, ID))
    lab.store = inner


def test_objects_of_a_later_release_end_a_repair_with_an_answer(lab: Lab) -> None:
    """Without one the request would fail each minute. The object with the name of the good copy is not overwritten."""
    key = KEYS.segment(SegmentName(10))
    lab.store.put(key, b"x", metadata={"ts-version": "99"})
    answer = lab.repair(Damage.DAMAGED, 10, 20, key)
    assert answer.outcome is Outcome.IMPOSSIBLE
    assert "later release" in answer.reason
