"""What Kafka would delete of a restored topic once its configurations are back."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tsctl.restore.documents import PartitionPlan

_WEEK: Final = 604_800_000  # Kafka's default of log.retention.ms


@dataclass(frozen=True, slots=True)
class Deletion:
    """What the next retention deletes.

    Attributes:
        below: the offsets below this one.
        size: bytes.
        why: the configuration.
    """

    below: int
    size: int
    why: str


def due_by_retention(plan: PartitionPlan, configurations: Mapping[str, str], now: int) -> Deletion | None:
    """Return what Kafka would delete; None for nothing.

    Kafka deletes whole segments from the first on: those whose greatest timestamp is older than `retention.ms`, and
    those without which the log still has `retention.bytes`. A segment without a known time is not counted as due.

    Args:
        configurations: of the topic; without `retention.ms` Kafka's default of seven days is assumed.
        now: ms since the epoch.
    """
    if "delete" not in configurations.get("cleanup.policy", "delete"):
        return None
    age, most = int(configurations.get("retention.ms", _WEEK)), int(configurations.get("retention.bytes", -1))
    left = size = sum(source.size for step in plan.steps for source in step.sources)
    below, why = plan.start, ""
    for step in plan.steps:
        times = [source.time_max for source in step.sources]
        bytes_of = sum(source.size for source in step.sources)
        is_old = age >= 0 and all(time is not None and now - time > age for time in times)
        is_much = most >= 0 and left - bytes_of >= most
        if not (is_old or is_much):
            break
        below, left = step.end, left - bytes_of
        why = f"retention.ms={age}" if is_old else f"retention.bytes={most}"
    return Deletion(below, size - left, why) if below > plan.start else None
