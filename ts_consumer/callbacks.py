"""Callbacks of the application, called so that their errors do not pass through librdkafka.

Where a callback raises an error, the binding ends the call early (`rd_kafka_yield`). `rd_kafka_q_serve_rkmessages` then
forgets the next message of its queue. So the message is lost, and `rd_kafka_destroy` waits for it for ever. The binding
drops all other messages of the call too. So errors are kept here, and raised when what the call returned is safe.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Final

import structlog

_KEYS: Final = ("error_cb", "throttle_cb", "stats_cb", "on_commit")  # the binding handles the errors of oauth_cb itself

log = structlog.get_logger()


class CallbackErrors:
    """Errors of the callbacks of one call of the application; used by one call at a time."""

    def __init__(self) -> None:
        self._errors: list[BaseException] = []

    def keep_of(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return a configuration whose callbacks raise nothing. librdkafka refuses values that are not callable."""
        kept = {key: self._kept(given) for key in _KEYS if callable(given := settings.get(key))}
        return {**settings, **kept}

    def call(self, callback: Callable[..., Any], *arguments: Any) -> Any:
        """Call a callback, and keep its error; then return None."""
        try:
            return callback(*arguments)
        except BaseException as error:  # noqa: BLE001  (an interrupt too: `raise_first` raises it)
            self._errors.append(error)
            return None

    def raise_first(self) -> None:
        """Raise the first error that was kept, and log the others: a call raises one."""
        if not self._errors:
            return
        first, *others = self._errors
        self._errors.clear()
        for each in others:
            log.warning("callback_failed", reason=f"{type(each).__name__}: {each}")
        raise first

    def _kept(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(callback)
        def kept(*arguments: Any) -> Any:
            return self.call(callback, *arguments)

        return kept
