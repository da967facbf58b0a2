"""What every driver refuses before it begins, and the body it reads: one rule for all, so that what one store holds
another can hold too.
"""

import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from ts_common.errors import OperatorError, SegmentChanged
from ts_common.store.contract import Body

# S3's limit on user metadata, names and values together.
METADATA_BYTES = 2048
# The SDK's C library signs bodies by 4 KiB (BODY_READ_BUFFER_SIZE of aws-c-auth's request signing).
_BUFFER_BYTES: Final = 1 << 18
_NO_PART = re.compile(r"(?:^|/)\.{0,2}(?:/|\Z)")  # an empty one, `.` or `..`


class KeyRefused(OperatorError, ValueError):
    """No store can hold this key. What it is the key of goes up under no other name, so somebody must act; the rest of
    the work goes on.
    """


def is_key(name: str) -> bool:
    """Whether every driver can hold an object under this name."""
    # Of most names it takes a fraction of the time to see that no part can be such a one; listings ask it of each key.
    if name and name[0] not in "./" and name[-1] != "/" and "//" not in name and "/." not in name:
        return True
    return _NO_PART.search(name) is None


def check_key(key: str) -> str:
    """The key, if every driver can hold it.

    Raises:
        KeyRefused: a part is empty, ``.`` or ``..``.
    """
    if not is_key(key):
        raise KeyRefused(f"not a key: {key!r}; its parts between '/' are not empty, '.' or '..'")
    return key


def check_prefix(prefix: str) -> str:
    """The prefix, if keys can begin with it; its last part may be the beginning of a name.

    Raises:
        KeyRefused: as for a key.
    """
    directory, slash, _ = prefix.rpartition("/")
    if slash:
        check_key(directory)
    return prefix


def check_directory(prefix: str) -> str:
    """The prefix, if it is empty or a directory.

    Raises:
        ValueError: it does not end in ``/``, or (a KeyRefused) keys cannot begin with it.
    """
    if prefix and not prefix.endswith("/"):
        raise ValueError(f"not a directory prefix: {prefix!r}; it is empty or ends in '/'")
    return check_prefix(prefix)


def check_metadata(metadata: Mapping[str, str]) -> Mapping[str, str]:
    """The metadata, if S3 gives it back as it was.

    Raises:
        ValueError: a name is not in lower case, something is not printable ASCII, or all is larger than 2 KB.
    """
    for name, value in metadata.items():
        text = name + value
        if not name or name != name.lower() or not (text.isascii() and text.isprintable()) or value != value.strip():
            raise ValueError(f"not metadata: {name!r}={value!r}; printable ASCII, names in lower case, no outer spaces")
    if (total := sum(len(name) + len(value) for name, value in metadata.items())) > METADATA_BYTES:
        raise ValueError(f"{total} bytes of metadata; S3 holds at most {METADATA_BYTES}")
    return metadata


class SizedBody:
    """The first `size` bytes of a reader, as a reader of their own that begins at zero.

    Attributes:
        failure: what the reader raised, or that it ended early.
    """

    def __init__(self, body: Body, size: int, name: str) -> None:
        self._body = body
        self._size = size
        self._name = name
        self._position = body.seek(0)
        self.failure: Exception | None = None

    @contextmanager
    def failing_as_it_did(self) -> Iterator[None]:
        """Raise what the reader raised, where something else was made of it: the body broke off, so that no store can
        have taken it, whatever the connection says.
        """
        try:
            yield
        except Exception as error:
            if self.failure is not None and self.failure is not error:
                raise self.failure from None
            raise

    def read(self, size: int = -1, /) -> bytes:
        """Up to `size` bytes; empty at the end.

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
        """The position in bytes."""
        return self._position


class _RawBody(io.RawIOBase):
    """A body with the face of `io`."""

    def __init__(self, body: SizedBody) -> None:
        self._body = body

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:  # the stubs' own Buffer is of no use here
        piece = self._body.read(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._body.seek(offset, whence)


def in_small_pieces(body: SizedBody) -> io.BufferedReader:
    """The body, for one who reads it by a few KiB: most reads run no Python code."""
    return io.BufferedReader(_RawBody(body), _BUFFER_BYTES)


def body_size(body: bytes | Body, size: int | None) -> int:
    """How many bytes of `body` are meant.

    Raises:
        ValueError: a reader without a size, or bytes with another one.
    """
    if isinstance(body, bytes):
        if size not in {None, len(body)}:
            raise ValueError(f"a body of {len(body)} bytes with size={size}")
        return len(body)
    if size is None or size < 0:
        raise ValueError(f"a body that is a reader needs its size, not {size}")
    return size
