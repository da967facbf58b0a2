"""Recorded requests: files of frames as clients sent them, one line each.

A file begins with a line `topic NAME ID` for each topic, because requests can name a topic by its id. Each further line
is a request: its kind, its version, and its frame without the length in base64.
"""

import struct
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

from ts_endpoint.protocol.versions import Api

REQUESTS: Final = Path(__file__).parent / "requests"
_HEAD: Final = struct.Struct(">hhi")  # api key, version, correlation id


@dataclass(frozen=True, slots=True)
class Frame:
    """One request.

    Attributes:
        api: its kind.
        version: of the kind.
        data: its bytes without the length.
    """

    api: Api
    version: int
    data: bytes

    def with_correlation(self, number: int) -> bytes:
        """Return the bytes with another correlation id."""
        return _HEAD.pack(self.api, self.version, number) + self.data[_HEAD.size :]


@dataclass(frozen=True, slots=True)
class Recording:
    """What one client sent in a session.

    Attributes:
        client: its name.
        topic_ids: of the topics then.
        frames: in the order of their arrival, each different one once.
    """

    client: str
    topic_ids: Mapping[UUID, str]
    frames: tuple[Frame, ...]

    @property
    def kinds(self) -> frozenset[tuple[Api, int]]:
        """The kinds and versions of the requests."""
        return frozenset((frame.api, frame.version) for frame in self.frames)

    def write(self, directory: Path = REQUESTS) -> None:
        """Write the file of the client."""
        lines = [f"topic {name} {topic_id}" for topic_id, name in self.topic_ids.items()]
        lines += [f"{each.api.name} {each.version} {b64encode(each.data).decode()}" for each in self.frames]
        directory.mkdir(exist_ok=True)
        (directory / f"{self.client}.txt").write_text("\n".join([*lines, ""]))


def head_of(data: bytes) -> tuple[int, int, int]:
    """Return number, version and correlation id of a request."""
    key, version, correlation = _HEAD.unpack_from(data)
    return key, version, correlation


def distinct(frames: Iterable[Frame]) -> tuple[Frame, ...]:
    """Return the frames that differ in more than the correlation id, in order."""
    return tuple({(each.api, each.version, each.with_correlation(0)): each for each in frames}.values())


def read_recording(client: str) -> Recording:
    """Return the recording of a client."""
    topic_ids, frames = {}, []
    for line in (REQUESTS / f"{client}.txt").read_text().splitlines():
        kind, first, second = line.split()
        if kind == "topic":
            topic_ids[UUID(second)] = first
        else:
            frames.append(Frame(Api[kind], int(first), b64decode(second)))
    return Recording(client, topic_ids, tuple(frames))
