"""Holds: what retention must not remove, in `holds/<name>.json` below the cluster's prefix.

::

    <base prefix>/ts-uploader~cluster~<cluster>/holds/case-17.json
    {"version":1,"name":"case-17","topics":["orders"],"prefix":null,"reason":"audit 17","until":null,
     "setBy":"arn:aws:iam::111122223333:user/a","time":1700000000000,"twoPeople":true,"purpose":"hold","lock":true}

    <base prefix>/ts-uploader~cluster~<cluster>/holds/removed/case-17-1700000500000.json
    {"version":1,"hold":{...},"removedBy":"arn:aws:iam::111122223333:user/b","reason":"closed","time":1700000500000}

An object is written if absent and never replaced. Every store of the archive has the same holds. A hold that one store
lacks is still one, so a reader of several stores unites what it finds.

Doubt deletes nothing: an object below `holds/` that this release cannot read is an error, and no absent hold.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Final

from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.stored_object import Presence, StoredObject, limited
from ts_common.archive.topic_choice import topic_chooser
from ts_common.errors import CorruptData, NewerFormat
from ts_common.json_objects import optional_number, shown, text, whole_number
from ts_common.store.contract import ObjectStore

LONGEST_TEXT: Final = 1000  # characters of a reason, a topic or a pattern
MOST_TOPICS: Final = 1000
LARGEST: Final = 16 << 20  # a thousand texts of a thousand characters, each escaped
HELD: Final = "hold"  # the purpose of a hold that a person sets
_WAY_OUT: Final = "; while it exists, no retention removes anything of this cluster; compare it with docs/retention.md"
_SUFFIX: Final = ".json"
_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}", re.ASCII)
_NOT_IN_A_LINE: Final = frozenset({"Cc", "Zl", "Zp"})  # categories: control characters, ends of lines and paragraphs
_PREFIX: Final = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)
_TRACE: Final = re.compile(rf"(?P<name>{_NAME.pattern})-(?P<time>[0-9]{{1,19}})\.json", re.ASCII)
# A hold is read from the bucket. The time of a match can grow exponentially with repeated groups, and with the number
# of groups or repetitions: three of `.*` need a second at most for any name of a topic, a dozen of them need years.
_REPETITION: Final = re.compile(r"[*+{]|(?<!\()\?")
_SLOW: Final = re.compile(r"\)[*+{]|\(\?[aiLmsux-]")  # a repeated group; flags, which can change what is one
_MOST_PARTS: Final = 3
_Text = Annotated[str, limited(LONGEST_TEXT)]
_choosers: Final = lru_cache(256)(topic_chooser)  # a run of retention checks thousands of topics


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold(StoredObject, expected="a hold", most=LARGEST, way_out=_WAY_OUT):
    """What retention must not remove, and why.

    Attributes:
        name: unique in the cluster: up to 100 letters, digits, `.`, `_` and `-`, without a dot at its start.
        reason: one text, not empty. A new one has one line; a stored one may have several.
        topics: names of topics, and regular expressions over whole names.
        prefix: of names of topics; None for no prefix.
        until: milliseconds since the epoch; from then on it stops nothing. None: until it is removed.
        set_by: who set it, as `ObjectStore.identity`; None if the store did not identify them.
        time: milliseconds since the epoch: it was set.
        two_people: whether only another identity may remove it.
        purpose: `hold`, or the operation that set it.
        lock: whether the versions of what it matches get legal holds of the store. Releases before this field ignore
            it: they stop retention all the same.

    Raises:
        ValueError: a value is not valid, or it names no topic.
    """

    name: _Text
    topics: tuple[_Text, ...] = ()
    prefix: _Text | None = None
    reason: _Text
    until: int | None = None
    set_by: _Text | None = None
    time: int = 0
    two_people: bool = False
    purpose: _Text = HELD
    lock: Annotated[bool, Presence.IF_SET] = False

    def __post_init__(self) -> None:
        check_hold_name(self.name)
        for each in (self.reason, *self.topics, self.purpose, self.set_by or ""):
            text(each, LONGEST_TEXT)
        optional_number(self.until)
        whole_number(self.time)
        if not self.reason.strip():
            raise ValueError("the reason is empty")
        if self.prefix is not None and not _PREFIX.fullmatch(self.prefix):
            raise ValueError(f"{self.prefix!r} is no beginning of a topic's name")
        if not self.topics and self.prefix is None:
            raise ValueError("it names no topic, no pattern and no prefix")
        if not all(self.topics):
            raise ValueError("a topic is an empty text, which matches no topic")
        if len(self.topics) > MOST_TOPICS:
            raise ValueError(f"{len(self.topics)} topics and patterns; at most {MOST_TOPICS} are expected")
        for each in self.topics:
            _check_is_fast(each)
        _choosers(self.topics)

    def matches(self, topic: str) -> bool:
        """Return whether it concerns a topic, expired or not."""
        return (self.prefix is not None and topic.startswith(self.prefix)) or _choosers(self.topics)(topic)

    def is_expired(self, now: int) -> bool:
        """Return whether it stops nothing any more; `now` is in milliseconds since the epoch."""
        return self.until is not None and now >= self.until

    def stops(self, topic: str, now: int) -> bool:
        """Return whether retention must not remove objects of a topic; `now` is in milliseconds since the epoch."""
        return not self.is_expired(now) and self.matches(topic)

    def has_terms_of(self, other: "Hold") -> bool:
        """Return whether two holds differ only in who set them, and when."""
        return self.terms == other.terms

    @property
    def terms(self) -> tuple[object, ...]:
        """All values but who set it, and when."""
        topics = tuple(sorted(set(self.topics)))
        return (self.name, self.reason, topics, self.prefix, self.until, self.two_people, self.purpose, self.lock)


@dataclass(frozen=True, slots=True)
class Removal(StoredObject, expected="the trace of a removed hold", most=LARGEST):
    """The trace of a hold that was removed.

    Attributes:
        hold: as it was.
        removed_by: who removed it, as `ObjectStore.identity`; None if the store did not identify them.
        reason: one text, not empty.
        time: milliseconds since the epoch, just before the hold was deleted.

    Raises:
        ValueError: a value is not valid.
    """

    hold: Hold
    removed_by: _Text | None
    reason: _Text
    time: int

    @property
    def name(self) -> str:
        """The name of the hold."""
        return self.hold.name

    def __post_init__(self) -> None:
        for each in (self.reason, self.removed_by or ""):
            text(each, LONGEST_TEXT)
        whole_number(self.time)
        if not self.reason.strip():
            raise ValueError("the reason is empty")


def check_hold_name(name: str) -> str:
    """Return the name of a hold, which is a part of a key.

    Raises:
        ValueError: it is not one.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a hold: up to 100 letters, digits, '.', '_' and '-' are expected")
    return name


def check_reason(reason: str) -> str:
    """Return a reason that is one line, as new holds and removals have; stored ones may have several lines.

    Raises:
        ValueError: it has a control character or the end of a line.
    """
    if any(unicodedata.category(each) in _NOT_IN_A_LINE for each in reason):
        raise ValueError("the reason has a control character; one line is expected")
    return reason


def _check_is_fast(pattern: str) -> None:
    """Refuse a regular expression that can need hours for one name.

    Raises:
        ValueError: it has more than three groups or repetitions, repeats a group, or sets flags.
    """
    most = max(len(_REPETITION.findall(pattern)), pattern.count("("))
    if most > _MOST_PARTS or _SLOW.search(pattern):
        raise ValueError(
            f"{shown(pattern)}: at most {_MOST_PARTS} groups and {_MOST_PARTS} repetitions are expected, no repeated "
            "group and no flags, because a match could need hours; give several patterns"
        )


def is_same_identity(one: str, other: str) -> bool:
    """Return whether two identities, as `ObjectStore.identity` returns them, have a word in common."""
    return not set(one.split()).isdisjoint(other.split())


def read_hold(store: ObjectStore, keys: ClusterKeys, name: str) -> tuple[Hold, str] | None:
    """Return a hold and the ETag of its object; None if the store has no hold of this name.

    Raises:
        CorruptData: the object is damaged, or has another name.
        NewerFormat: a later release wrote it.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    return Hold.read_with_etag(store, keys.hold(check_hold_name(name)), name=name)


def read_holds(store: ObjectStore, keys: ClusterKeys) -> tuple[Hold, ...]:
    """Return all holds of a cluster in one store by name, expired ones too.

    Raises:
        CorruptData: an object below `holds/` is damaged, or is no hold. Everything is held then.
        NewerFormat: a later release wrote one of them, with the same consequence.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    found = []
    for key in _listed(store, keys.holds):
        if key.startswith(keys.removed_holds):
            continue
        name = key.removeprefix(keys.holds).removesuffix(_SUFFIX)
        if not _NAME.fullmatch(name) or key != keys.hold(name):
            raise CorruptData(f"{key}: it is below {keys.holds} and has no name of a hold{_WAY_OUT}")
        if (one := read_hold(store, keys, name)) is not None:  # None: it was removed since
            found.append(one[0])
    return tuple(found)


def read_removals(store: ObjectStore, keys: ClusterKeys, unreadable: Callable[[str], None]) -> tuple[Removal, ...]:
    """Return the traces of removed holds of a cluster in one store by name; other names are ignored.

    Args:
        store: of the holds.
        unreadable: is called with a message for each trace that is damaged or of a later release.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    found: list[Removal | None] = []
    for key in _listed(store, keys.removed_holds):
        match = _TRACE.fullmatch(key.removeprefix(keys.removed_holds))
        if match is None:
            continue
        try:
            found.append(Removal.read(store, key, name=match["name"], time=int(match["time"])))
        except (CorruptData, NewerFormat) as error:
            unreadable(str(error))
    return tuple(each for each in found if each is not None)


def _listed(store: ObjectStore, prefix: str) -> Iterator[str]:
    return (info.key for info in store.list(prefix))
