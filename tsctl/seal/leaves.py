r"""The objects `seals/<n>.json`: the leaves of one seal, and its signed head.

::

    {"version":1,"head":"{\"version\":1,\"seal\":7,\"cluster\":\"prod\",...}","signature":"<128 hex digits>","leaves":[
     {"kind":"log","key":"prod/orders-0/00000000000000000100.log","version":"3f..","size":1048576,"sha256":"<64>",
      "base":100,"end":200,"epochs":[[5,0]]},
     {"kind":"gap","key":"prod/orders-0/gaps/200-210.json","version":"4a..","size":90,"sha256":"<64>",
      "base":200,"end":210},
     {"kind":"erasure","key":"ts-uploader~cluster~prod/erasures/7.done.json","size":900,"sha256":"<64>"},
     {"kind":"retired","key":"prod/orders-0/00000000000000000000.log","version":"1c..",
      "by":"gc-20261128T020000000Z-1f2e3d4c"},
     {"kind":"replaced","key":"prod/orders-0/00000000000000000100.log","version":"3f..",
      "by":"prod/orders-0/00000000000000000100.e5.1a2b3c4d.log"}]}

The head is a text, so that its bytes are those that were signed. It has the Merkle root over the leaves, and the
SHA-256 of the head before. So the signature covers the leaves of all seals up to this one. A leaf is hashed as its JSON
without white space, its fields in the order above.

A seal has at most `MOST_LEAVES` leaves, and a reader accepts at most `SEAL_BYTES`. A run with more writes several.
"""

from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, Final

from ts_common.archive.stored_object import Epoch, Presence, StoredObject, between, limited
from ts_common.store.validation import check_key
from tsctl.seal.merkle import leaf_hash, root_of

MOST_LEAVES: Final = 20_000
SEAL_BYTES: Final = 32 << 20  # a leaf of the longest key and sixteen epochs has less than 1.6 KB
HEAD_BYTES: Final = 4096
_KEY: Final = 1024  # bytes of a key of S3

_Key = Annotated[str, limited(_KEY, "[!-~]+")]  # Kafka's names and ids of clusters are ASCII
_Text = Annotated[str, limited(_KEY)]
_Sha256 = Annotated[str, limited(64, "[0-9a-f]{64}")]
_Signature = Annotated[str, limited(128, "[0-9a-f]{128}")]
_Unset = Presence.IF_SET


class LeafKind(StrEnum):
    """What a leaf describes: an object that was read, or why an object of an earlier leaf is missing."""

    LOG = "log"
    GAP = "gap"
    ERASURE = "erasure"  # an object below `erasures/`
    RETIRED = "retired"  # retention deleted it
    REPLACED = "replaced"  # an erasure wrote another object in its place

    @property
    def is_object(self) -> bool:
        """Whether the archive has the object, as long as no later leaf explains its absence."""
        return self in {LeafKind.LOG, LeafKind.GAP, LeafKind.ERASURE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf(StoredObject):
    """One line of a seal.

    Attributes:
        key: relative to the location of the store.
        version: id of the version that was read; None in a store without versions.
        size: bytes.
        sha256: of all its bytes, in hexadecimal digits.
        base: first offset.
        end: the offset after the last; None for a segment without metadata.
        epochs: as in the metadata of a segment.
        by: of a `retired` object the run of retention, or the floor; of a `replaced` one the key of the other.

    Raises:
        ValueError: the kind needs a field that is missing, or the key is one that no store has.
    """

    kind: LeafKind
    key: _Key
    version: Annotated[_Text | None, _Unset] = None
    size: Annotated[int | None, _Unset] = None
    sha256: Annotated[_Sha256 | None, _Unset] = None
    base: Annotated[int | None, _Unset] = None
    end: Annotated[int | None, _Unset] = None
    epochs: Annotated[tuple[tuple[Epoch, int], ...], _Unset] = ()
    by: Annotated[_Text | None, _Unset] = None

    def __post_init__(self) -> None:
        check_key(self.key)
        needed = (self.size, self.sha256) if self.kind.is_object else (self.by,)
        if None in needed:
            raise ValueError(f"a leaf of kind {self.kind} lacks {'size or sha256' if self.kind.is_object else 'by'}")

    @property
    def hashed(self) -> bytes:
        """Its hash in the tree."""
        return leaf_hash(self.encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class Head(StoredObject, expected="the head of a seal", most=HEAD_BYTES, end=""):
    """What a signature covers.

    Attributes:
        seal: number of the seal, from 1.
        cluster: its id.
        location: of the store, for people.
        time: milliseconds since the epoch, by the store's clock: when the seal was made.
        leaves: number of leaves.
        root: Merkle root over them.
        previous: SHA-256 of the head of the seal before; None for seal 1.
        key: SHA-256 of the public key in DER, which names the key.
    """

    seal: Annotated[int, between(1)]
    cluster: str
    location: _Text
    time: int
    leaves: Annotated[int, between(1, MOST_LEAVES)]
    root: _Sha256
    previous: _Sha256 | None
    key: _Sha256

    @property
    def sha256(self) -> str:
        """SHA-256 of its text, which the next seal has and a timestamp token covers."""
        return sha256(self.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal(StoredObject, expected="a seal", most=SEAL_BYTES):
    """An object `seals/<n>.json`.

    Attributes:
        head: its text.
        signature: Ed25519 over the bytes of `head`, in hexadecimal digits.
        leaves: at most `MOST_LEAVES`.
    """

    head: Annotated[str, limited(HEAD_BYTES)]
    signature: _Signature
    leaves: tuple[Leaf, ...]

    @property
    def root(self) -> str:
        """The root over its leaves."""
        return root_of([leaf.hashed for leaf in self.leaves]).hex()
