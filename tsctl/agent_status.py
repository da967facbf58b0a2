"""The status of an agent, `/status.json`. Another program can answer, or an agent of another release.

A value that is missing, or that no agent serves, is unknown. It never counts as 0.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from ts_common.json_objects import MAX_INT64

_WELL: Final = "well"


@dataclass(frozen=True, slots=True)
class Answer:
    """The response of one agent.

    Attributes:
        fields: its status; None if the request failed.
        problem: why the request failed.
    """

    address: str
    fields: Mapping[str, Any] | None
    problem: str | None = None

    @property
    def is_well(self) -> bool:
        """Whether it is healthy and ready, and by its own judgement no operator needs to look.

        Only `true` counts: a value that no agent serves is no sign of health.
        """
        fields = self.fields
        if fields is None or fields.get("healthy") is not True or fields.get("ready") is not True:
            return False
        if fields.get("stuck") or self.partitions is None or not isinstance(fields.get("state", {}), dict):
            return False
        if "well" in self.state:
            return self.state["well"] is True
        return bool(self.state.get("condition", _WELL) == _WELL)

    @property
    def state(self) -> Mapping[str, Any]:
        """Its condition as a whole; empty without one: an earlier release has no `state`."""
        found = None if self.fields is None else self.fields.get("state")
        return found if isinstance(found, dict) else {}

    @property
    def partitions(self) -> list[Mapping[str, Any]] | None:
        """The partitions that its broker leads; None if they are unknown."""
        found = None if self.fields is None else self.fields.get("partitions")
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            return None
        return found

    def total(self, name: str) -> "Total":
        """Return the sum of a field over all partitions."""
        return self._over(name, number, sum)

    def greatest(self, name: str) -> "Total":
        """Return the greatest value of a field over all partitions; 0 without one."""
        return self._over(name, number, lambda found: max(found, default=0))

    def least_share(self, name: str) -> "Total":
        """Return the least value of a field from 0 to 1 over all partitions; None without one."""
        return self._over(name, _share_or_all, lambda found: min(found, default=None))

    def _over(
        self,
        name: str,
        read: Callable[[Mapping[str, Any], str], float | None],
        joined: Callable[[Iterable[float]], float | None],
    ) -> "Total":
        partitions = self.partitions
        values = [read(each, name) for each in partitions or ()]
        known = [value for value in values if value is not None]
        is_whole = partitions is not None and len(known) == len(values)
        return Total(joined(known) if is_whole or known else None, is_whole)


@dataclass(frozen=True, slots=True)
class Total:
    """A number over all partitions of an agent.

    Attributes:
        value: over the partitions where it is known; None without such a partition, or if nothing was counted.
        is_whole: whether it is known for each partition.
    """

    value: float | None
    is_whole: bool

    def shown(self, form: Callable[[float], str], bound: str = "at least") -> str | None:
        """Return it as text; None if there is no value.

        Args:
            form: returns a value as text.
            bound: what the value is if some partitions' are unknown.
        """
        if self.value is None:
            return None
        return form(self.value) if self.is_whole else f"{bound} {form(self.value)}"


def number(fields: Mapping[str, Any], name: str) -> float | None:
    """Return a number from 0 on; None for any other value."""
    found = fields.get(name)
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    return found if 0 <= found <= MAX_INT64 else None


def count(fields: Mapping[str, Any], name: str) -> int | None:
    """Return a whole number from 0 on; None for any other value."""
    found = fields.get(name)
    return found if isinstance(found, int) and number(fields, name) is not None else None


def flag(fields: Mapping[str, Any], name: str) -> bool | None:
    """Return true or false; None for any other value."""
    found = fields.get(name)
    return found if isinstance(found, bool) else None


def words(fields: Mapping[str, Any], name: str) -> str | None:
    """Return a text; None for any other value, and for an empty one."""
    found = fields.get(name)
    return found if isinstance(found, str) and found else None


def share(fields: Mapping[str, Any], name: str) -> float | None:
    """Return a number from 0 to 1; None for any other value."""
    found = number(fields, name)
    return found if found is not None and found <= 1 else None


def _share_or_all(fields: Mapping[str, Any], name: str) -> float | None:
    """Return a share; an earlier release has null where nothing waits."""
    return 1.0 if name in fields and fields[name] is None else share(fields, name)


def seconds_of(fields: Mapping[str, Any], name: str) -> float | None:
    """Return the seconds since the epoch of a time in ISO 8601 with a zone; None for any other value."""
    try:
        found = datetime.fromisoformat(words(fields, name) or "")
        return found.timestamp() if found.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def objects(fields: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the objects of a list; other elements are left out, and for another value the list is empty."""
    found = fields.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
