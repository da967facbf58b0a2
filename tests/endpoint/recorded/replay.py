"""Send recorded requests to a server, with the ids that it has: of topics, members and generations."""

import io
import socket
import struct
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from datetime import timedelta
from itertools import count
from typing import Any, Final
from uuid import UUID

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32Timedelta

from tests.endpoint.recorded.frames import Frame, Recording
from ts_endpoint.protocol.requests import Request, parse_request
from ts_endpoint.protocol.versions import Api

_SECONDS: Final = 60.0
_LONGEST_WAIT: Final = timedelta(milliseconds=20)  # of a Fetch, whose recorded one ends with the topic
_GROUP_FIELDS: Final = ("member_id", "generation_id", "generation_id_or_member_epoch")


class Replay:
    """One connection, and the ids that its server returned.

    Args:
        address: of the server.
        topic_ids: of its topics, by name.
    """

    def __init__(self, address: str, topic_ids: Mapping[str, UUID]) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), _SECONDS)
        self._stream = self._socket.makefile("rb")
        self._topic_ids = topic_ids
        self._members: dict[str, str] = {}  # by group
        self._generations: dict[str, int] = {}
        self._numbers = count(1)

    def close(self) -> None:
        """End the connection."""
        self._stream.close()
        self._socket.close()

    def send(self, frame: Frame, recording: Recording) -> None:
        """Send a request."""
        data = self._adapted(frame, recording).with_correlation(next(self._numbers))
        self._socket.sendall(struct.pack(">i", len(data)) + data)

    def receive(self, frame: Frame) -> Any:
        """Return kio's entity of the reply to the request that was sent last.

        Raises:
            EOFError: the server ends the connection.
            AssertionError: the reply has bytes that kio does not write for the same values.
        """
        size = self._stream.read(4)
        if len(size) < 4:
            raise EOFError(f"{frame.api.name} of version {frame.version} ended the connection")
        entity = decoded(frame, self._stream.read(int.from_bytes(size, "big")))
        if frame.api is Api.JOIN_GROUP:
            group = parsed(frame).body.group_id
            self._members[group], self._generations[group] = entity.member_id, entity.generation_id
        return entity

    def _adapted(self, frame: Frame, recording: Recording) -> Frame:
        """Return the request with the ids of this server; its own bytes if it has none."""
        request = parsed(frame)
        body = self._replaced(request.body, recording, getattr(request.body, "group_id", None))
        if frame.api is Api.FETCH:
            body = replace(body, max_wait=i32Timedelta.parse(min(body.max_wait, _LONGEST_WAIT)))
        return frame if body == request.body else Frame(frame.api, frame.version, _encoded(request, body))

    def _replaced(self, value: Any, recording: Recording, group: str | None) -> Any:
        if isinstance(value, tuple):
            return tuple(self._replaced(each, recording, group) for each in value)
        if isinstance(value, UUID) and value in recording.topic_ids:
            return self._topic_ids[recording.topic_ids[value]]
        if not is_dataclass(value) or isinstance(value, type):
            return value
        changes = {}
        for field in fields(value):
            found = getattr(value, field.name)
            changed = self._replaced(found, recording, group)
            if group is not None and field.name in _GROUP_FIELDS:
                changed = self._of_group(field.name, found, group)
            if changed is not found:
                changes[field.name] = changed
        return replace(value, **changes) if changes else value

    def _of_group(self, field: str, found: Any, group: str) -> Any:
        if field == "member_id":
            return self._members.get(group, found) if found else found
        return type(found)(self._generations.get(group, found)) if found >= 0 else found


def parsed(frame: Frame) -> Request:
    """Return a request as the endpoint parses it."""
    request = parse_request(frame.data)
    assert isinstance(request, Request)
    return request


def decoded(frame: Frame, reply: bytes) -> Any:
    """Return kio's entity of a reply.

    Raises:
        AssertionError: it has bytes that kio does not write for the same values.
    """
    version = 0 if frame.api is Api.API_VERSIONS and reply[4:6] != bytes(2) else frame.version
    schema = load_response_schema(int(frame.api), version)
    header, used = entity_reader(schema.__header_schema__)(reply, 0)
    entity, _ = entity_reader(schema)(reply, used)
    found = io.BytesIO()
    entity_writer(schema.__header_schema__)(found, header)
    entity_writer(schema)(found, entity)
    assert found.getvalue() == reply, f"{frame.api.name} of version {frame.version}: {reply!r}"
    return entity


def _encoded(request: Request, body: Any) -> bytes:
    schema: Any = load_request_schema(int(request.api), request.version)
    header: Any = schema.__header_schema__
    found = io.BytesIO()
    named = {
        "request_api_key": int(request.api),
        "request_api_version": request.version,
        "correlation_id": request.correlation,
        "client_id": request.client_id,
    }
    entity_writer(header)(found, header(**{field.name: named[field.name] for field in fields(header)}))
    entity_writer(schema)(found, body)
    return found.getvalue()
