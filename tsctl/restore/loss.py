"""What Kafka would delete of a restored topic once its configurations are back."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ts_common.errors import QueryError
from tsctl.restore.partition_plan import PartitionPlan

# For topics without their own settings, unless the brokers have others.
KAFKAS_DEFAULTS: Final = {"cleanup.policy": "delete", "retention.ms": "604800000", "retention.bytes": "-1"}


@dataclass(frozen=True, slots=True)
class Deletion:
    """What the next retention deletes.

    Attributes:
        below: the offsets below this one.
        size: bytes.
    """

    below: int
    size: int
    why: str


def due_by_retention(
    plan: PartitionPlan, configurations: Mapping[str, str], now: int, defaults: Mapping[str, str] = KAFKAS_DEFAULTS
) -> Deletion | None:
    """Return what Kafka would delete; None for nothing.

    Kafka deletes whole segments from the first on: those whose greatest timestamp is older than `retention.ms`, and
    those without which the log still has `retention.bytes`. A segment without a known time is not counted as due.

    Args:
        now: ms since the epoch.
        defaults: what counts where the topic has no configuration, as `KafkaCluster.retention_defaults`.

    Raises:
        QueryError: a limit is not a number.
    """
    settings = {**defaults, **configurations}
    if "delete" not in settings["cleanup.policy"]:
        return None
    age, most = number_of(settings, "retention.ms"), number_of(settings, "retention.bytes")
    left = size = plan.size
    below, why = plan.start, ""
    for steps in plan.segments():
        times = [source.time_max for step in steps for source in step.sources]
        bytes_of = sum(step.size for step in steps)
        is_old = age >= 0 and all(time is not None and now - time > age for time in times)
        is_much = most >= 0 and left - bytes_of >= most
        if not (is_old or is_much):
            break
        below, left = steps[-1].end, left - bytes_of
        why = f"retention.ms={age}" if is_old else f"retention.bytes={most}"
    return Deletion(below, size - left, why) if below > plan.start else None


def number_of(configurations: Mapping[str, str], name: str) -> int:
    """Return a configuration that is a number.

    Raises:
        QueryError: it is not one.
    """
    try:
        return int(configurations[name])
    except ValueError as error:
        raise QueryError(
            f"{name}={configurations[name]}: a whole number is expected; make the plan with other --configurations"
        ) from error
