"""Why the endpoint ends a connection."""

from enum import Enum, auto
from typing import Final


class ConnectionEnds(Exception):
    """The endpoint closes the connection; the message is the reason. A handler may raise it.

    Attributes:
        kind: of the end, for the counter.
    """

    def __init__(self, message: str, kind: str = "refused_request") -> None:
        super().__init__(message)
        self.kind = kind


class Phase(Enum):
    """What a connection does."""

    OPENING = auto()
    IDLE = auto()
    RECEIVING = auto()
    ANSWERING = auto()
    SENDING = auto()
    MUTED = auto()
    PARTING = auto()


# Of each phase the kind of the end, and what is logged.
EXPIRED: Final = {
    Phase.OPENING: ("login_timeout", "no login in time"),
    Phase.IDLE: ("idle", None),
    Phase.RECEIVING: ("frame_timeout", "a frame did not end in time"),
    Phase.SENDING: ("reply_timeout", "a reply was not read in time"),
    Phase.PARTING: ("parting_timeout", None),  # a refused login was logged
}
