"""Reads the chain of seals of a store, and checks each: number, root, signature, and the hash of the seal before.

Leaves count only of a seal whose root and signature are right. A seal that is missing or damaged breaks the chain
there: the next one names a head that no one can compare.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.small_objects import get_small
from ts_common.errors import CorruptData, NewerFormat, ObjectNotFound
from ts_common.printable import printable
from ts_common.store.contract import ObjectStore
from tsctl.seal.leaves import HEAD_BYTES, SEAL_BYTES, Head, Leaf, Seal
from tsctl.seal.signing import AcceptedKey

_NAME: Final = re.compile(r"(?P<number>[1-9][0-9]{0,8})\.json", re.ASCII)
_TOKEN: Final = re.compile(r"(?P<number>[1-9][0-9]{0,8})\.tsr", re.ASCII)
TOKEN_BYTES: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class CheckedSeal:
    """A seal of the chain.

    Attributes:
        number: by its name.
        key: of the object.
        head: None if it is missing or cannot be read.
        text: of the head, as it was signed.
        signature: hexadecimal digits.
        leaves: empty unless root and signature are right.
        problems: what is wrong with it, one sentence each.
    """

    number: int
    key: str
    head: Head | None
    text: str
    signature: str
    leaves: tuple[Leaf, ...]
    problems: tuple[str, ...]


def read_chain(
    store: ObjectStore, keys: ClusterKeys, accepted: Mapping[str, AcceptedKey], known: Mapping[int, str] | None = None
) -> Iterator[CheckedSeal]:
    """Yield the seals of a store from the first to the last; a missing one too.

    Args:
        accepted: public keys by their names.
        known: SHA-256 of heads, kept elsewhere, by number.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: a request failed.
    """
    known = known or {}
    numbers = seal_numbers(store, keys)
    previous: Head | None = None
    for number in range(1, max((*numbers, *known), default=0) + 1):
        if number not in numbers:
            found = CheckedSeal(number, keys.seal(number), None, "", "", (), ("the seal is missing",))
        else:
            found = _read(store, keys, number, accepted, previous, is_first=number == 1)
        if found.head is not None and number in known and found.head.sha256 != known[number]:
            other = f"its head has SHA-256 {found.head.sha256}; expected {known[number]}: the chain was written again"
            found = CheckedSeal(
                number, found.key, found.head, found.text, found.signature, (), (*found.problems, other)
            )
        yield found
        previous = found.head


def seal_numbers(store: ObjectStore, keys: ClusterKeys) -> set[int]:
    """Return the numbers of the seals in a store.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    return _numbers(store, keys, _NAME)


def token_numbers(store: ObjectStore, keys: ClusterKeys) -> set[int]:
    """Return the numbers of the seals that have a timestamp token; it raises as `seal_numbers`."""
    return _numbers(store, keys, _TOKEN)


def _numbers(store: ObjectStore, keys: ClusterKeys, form: re.Pattern[str]) -> set[int]:
    names = (form.fullmatch(info.key.removeprefix(keys.seals)) for info in store.list(keys.seals))
    return {int(match["number"]) for match in names if match is not None}


def read_token(store: ObjectStore, keys: ClusterKeys, number: int) -> bytes | None:
    """Return the timestamp token of a seal; None without one.

    Raises:
        CorruptData: it is too large.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    try:
        return get_small(store, keys.seal_token(number), TOKEN_BYTES)[0]
    except ObjectNotFound:
        return None


def _read(
    store: ObjectStore,
    keys: ClusterKeys,
    number: int,
    accepted: Mapping[str, AcceptedKey],
    previous: Head | None,
    *,
    is_first: bool,
) -> CheckedSeal:
    key = keys.seal(number)
    try:
        seal = Seal.decode(get_small(store, key, SEAL_BYTES)[0], key)
        head = Head.decode(seal.head.encode(), f"{key}: head")
    except ObjectNotFound:
        return CheckedSeal(number, key, None, "", "", (), ("the seal was removed during the check",))
    except (CorruptData, NewerFormat) as error:
        return CheckedSeal(number, key, None, "", "", (), (str(error),))
    text = seal.head
    problems = [*_own_problems(seal, head, number, keys), *_signature_problems(seal, head, accepted)]
    is_trusted = not problems
    problems += _chain_problems(head, previous, is_first=is_first)
    if len(text) > HEAD_BYTES or head.encode().decode() != text:
        problems.append("its head has another form than this release writes")
        is_trusted = False
    return CheckedSeal(number, key, head, text, seal.signature, seal.leaves if is_trusted else (), tuple(problems))


def _own_problems(seal: Seal, head: Head, number: int, keys: ClusterKeys) -> Iterator[str]:
    if (head.seal, head.cluster) != (number, keys.cluster):
        yield f"its head is of seal {head.seal} of cluster {head.cluster}"
    if head.leaves != len(seal.leaves):
        yield f"it has {len(seal.leaves)} leaves; its head has {head.leaves}"
    elif (root := seal.root) != head.root:
        yield f"its leaves have the root {root}; its head has {head.root}"
    if others := [leaf.key for leaf in seal.leaves if keys.in_text.match(leaf.key) is None]:
        yield f"it names {printable(others[0])}, which is no object of the cluster"


def _signature_problems(seal: Seal, head: Head, accepted: Mapping[str, AcceptedKey]) -> Iterator[str]:
    key = accepted.get(head.key)
    if key is None:
        yield f"it is signed by the key {head.key}, which no --public-key has"
    elif not key.signed(bytes.fromhex(seal.signature), seal.head.encode()):
        yield f"its signature is not by the key {head.key} that it names"


def _chain_problems(head: Head, previous: Head | None, *, is_first: bool) -> Iterator[str]:
    if is_first:
        if head.previous is not None:
            yield "it is the first seal, and names one before it"
    elif previous is None:
        return  # the seal before has a problem of its own
    elif head.previous != previous.sha256:
        yield f"it names the head {head.previous} before it; the seal before has {previous.sha256}: the chain was cut"
    elif head.time < previous.time:
        yield "it is older than the seal before it"
