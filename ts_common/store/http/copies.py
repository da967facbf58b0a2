"""Copy an object by a `Service`, which may respond before the copy ends."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from ts_common.errors import ObjectNotFound, OutcomeUnknown, StoreUnavailable, TieredStorageError
from ts_common.store.answers import checked
from ts_common.store.call import Call
from ts_common.store.contract import ObjectInfo
from ts_common.store.http.client import Request, Response
from ts_common.store.http.service import Copying, Service

_SECONDS = 300.0  # for one copy of a few GiB
_PAUSE_SECONDS = 0.2

# Sends a request, and raises the error in its response.
Send = Callable[[Call, Request], Response]


def copy_object(service: Service, send: Send, call: Call, key: str, source: str, target: str) -> ObjectInfo:
    """Copy one object, and wait until the copy ends.

    Args:
        call: the copy, for messages.
        key: of the target, relative to the location.
        source: name of the object in the bucket.
        target: name of the copy.

    Raises:
        OutcomeUnknown: the copy did not end in time, or its end could not be read.
        StoreUnavailable: the service ended the copy without a target.
        TieredStorageError: as `ObjectStore.copy_if_absent`.
    """
    look = replace(call, writes=False, copies=False, operation=service.operations.head)
    deadline = time.monotonic() + _SECONDS
    request, reads = service.copy(source, target), False
    while True:
        try:
            answer = send(look if reads else call, request)
        except (ObjectNotFound, StoreUnavailable) as error:
            if reads:
                raise OutcomeUnknown(f"{call.operation} {call.target}: begun, but not read since: {error}") from error
            raise
        with call.understood():
            found = service.copied(key, source, target, answer)
            if isinstance(found, ObjectInfo):
                return checked(found)
        if found.failure is not None:
            raise _ended(service, send, call, found)
        if time.monotonic() > deadline:
            raise OutcomeUnknown(f"{call.operation} {call.target}: the copy did not end within {_SECONDS:.0f} seconds")
        if found.waits:
            time.sleep(_PAUSE_SECONDS)
        request, reads = found.following, found.reads


def _ended(service: Service, send: Send, call: Call, found: Copying) -> TieredStorageError:
    """Remove what a failed copy left, and return its error."""
    failed = f"{call.operation} {call.target}: the service ended the copy: {found.failure}"
    try:
        with suppress(ObjectNotFound):
            send(replace(call, writes=False, copies=False, operation=service.operations.delete), found.following)
    except TieredStorageError as error:
        return OutcomeUnknown(f"{failed}; the target may exist without content: {error}")
    return StoreUnavailable(failed)
