"""Checks of arguments that every driver makes first, so that each store can store what another can."""

import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from ts_common.errors import OperatorError, SegmentChanged
from ts_common.store.contract import Body
from ts_common.wording import counted

# S3's limit on user metadata, names and values together.
METADATA_BYTES = 2048
# The SDK's C library signs bodies by 4 KiB (BODY_READ_BUFFER_SIZE of aws-c-auth's request signing).
_BUFFER_BYTES: Final = 1 << 18
_INVALID_PART = re.compile(r"(?:^|/)\.{0,2}(?:/|\Z)")  # empty, `.` or `..`


class KeyRefused(OperatorError, ValueError):
    """Some store cannot store this key.

    The object is not stored under another name, so the operator must act. All other work continues.
    """


def is_key(name: str) -> bool:
    """Return whether every driver can store an object under this name."""
    # For most names this shorter check suffices, in a fraction of the time; listings check each key.
    if name and name[0] not in "./" and name[-1] != "/" and "//" not in name and "/." not in name:
        return True
    return _INVALID_PART.search(name) is None


def check_key(key: str) -> str:
    """Return the key if every driver can store it.

    Raises:
        KeyRefused: a part is empty, ``.`` or ``..``.
    """
    if not is_key(key):
        raise KeyRefused(f"not a key: {key!r}; no part between '/' may be empty, '.' or '..'")
    return key


def check_copy(source: str, target: str) -> None:
    """Check the keys of a copy.

    Raises:
        KeyRefused: as `check_key`.
        ValueError: they are the same key.
    """
    if check_key(source) == check_key(target):
        raise ValueError(f"a copy of {source!r} to itself; expected another key")


def check_etags(etags: Mapping[str, str]) -> Mapping[str, str]:
    """Return the ETags by key if each can be the condition of a delete.

    Raises:
        KeyRefused: as `check_key`.
        ValueError: an ETag would match no object, or every one as `*` does.
    """
    for key, etag in etags.items():
        if etag.strip('"') in {"", "*"} or not (etag.isascii() and etag.isprintable()):
            raise ValueError(f"{check_key(key)}: not the ETag of an object: {etag[:80]!r}")
        check_key(key)
    return etags


def check_prefix(prefix: str) -> str:
    """Return the prefix if keys can begin with it; its last part may be the beginning of a name.

    Raises:
        KeyRefused: as for a key.
    """
    directory, slash, _ = prefix.rpartition("/")
    if slash:
        check_key(directory)
    return prefix


def check_directory(prefix: str) -> str:
    """Return the prefix if it is empty or a directory.

    Raises:
        ValueError: it does not end with ``/``, or (a KeyRefused) keys cannot begin with it.
    """
    if prefix and not prefix.endswith("/"):
        raise ValueError(f"not a directory prefix: {prefix!r}; expected an empty one, or '/' at its end")
    return check_prefix(prefix)


def check_metadata(metadata: Mapping[str, str]) -> Mapping[str, str]:
    """Return the metadata if S3 returns it unchanged.

    Raises:
        ValueError: a name is not in lower case, a character is not printable ASCII, or all is larger than 2 KB.
    """
    for name, value in metadata.items():
        text = name + value
        if not name or name != name.lower() or not (text.isascii() and text.isprintable()) or value != value.strip():
            raise ValueError(
                f"not metadata: {name!r}={value!r}; expected printable ASCII, names in lower case, no outer spaces"
            )
    if (total := sum(len(name) + len(value) for name, value in metadata.items())) > METADATA_BYTES:
        raise ValueError(f"{total} bytes of metadata; S3 stores at most {METADATA_BYTES}")
    return metadata


class SizedBody:
    """A reader of the first `size` bytes of another reader.

    Attributes:
        failure: the exception of the other reader, or SegmentChanged if it ended early; None without one.
    """

    def __init__(self, body: Body, size: int, name: str) -> None:
        self._body = body
        self._size = size
        self._name = name
        self._position = body.seek(0)
        self.failure: Exception | None = None

    @contextmanager
    def raising_own_failure(self) -> Iterator[None]:
        """Raise the reader's exception in place of a later one.

        If the reader fails, the body is incomplete and no store has accepted it, whatever error the connection raises.
        """
        try:
            yield
        except Exception as error:
            if self.failure is not None and self.failure is not error:
                raise self.failure from None
            raise

    def read(self, size: int = -1, /) -> bytes:
        """Return up to `size` bytes; none at the end.

        Raises:
            SegmentChanged: the reader ended before its size.
        """
        left = self._size - self._position
        wanted = left if size < 0 else min(size, left)
        if not wanted:
            return b""
        try:
            piece = self._body.read(wanted)
            if not piece:
                raise SegmentChanged(f"{self._name}: the body ended at byte {self._position} of {self._size}")
        except Exception as failure:
            self.failure = failure
            raise
        self._position += len(piece)
        return piece

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Move the position, as `io.IOBase.seek` does."""
        start = (0, self._position, self._size)[whence]
        self._position = self._body.seek(start + offset)
        return self._position

    def tell(self) -> int:
        """Return the position in bytes."""
        return self._position


class _RawBody(io.RawIOBase):
    """A body with the interface of `io`."""

    def __init__(self, body: SizedBody) -> None:
        self._body = body

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:  # the stubs' Buffer supports no assignment
        piece = self._body.read(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._body.seek(offset, whence)


def in_small_pieces(body: SizedBody) -> io.BufferedReader:
    """Return a buffered reader of the body, for a caller that reads a few KiB: most reads run no Python code."""
    return io.BufferedReader(_RawBody(body), _BUFFER_BYTES)


def body_size(body: bytes | Body, size: int | None) -> int:
    """Return the number of bytes of `body` to send.

    Raises:
        ValueError: a reader without a size, or bytes with another one.
    """
    if isinstance(body, bytes):
        if size not in {None, len(body)}:
            raise ValueError(f"a body of {counted(len(body), 'byte')} with size={size}")
        return len(body)
    if size is None or size < 0:
        raise ValueError(f"a body that is a reader requires its size; found size={size}")
    return size
