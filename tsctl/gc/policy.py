r"""The policy of retention, a YAML file: which topics' segments are due, and what waits for readers.

::

    grace: 20h
    fuse: {objects: 100000, bytes: 10TiB, share: 50%}
    least_time: 7d
    rules:
      - topics: payments
        keep: true
      - topics: [orders, events\..*]
        max_age: 400d
        max_size: 2TiB
        until_read_by:
          - table: backup.orders
          - checkpoint: s3://lake/checkpoints/orders
        longest_wait: 30d
      - topics: .*
        as_in_kafka: true
    own: {plans: 90d}
    deleted_topics: {after: 30d}

The first rule that matches a topic applies to it. A topic without a rule keeps everything. No key
that makes something due has a default.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from ts_common.config.file_values import LIST, Milliseconds, Share, Size, check_store, listed, parse_milliseconds
from ts_common.config.yaml_files import read_yaml, validate
from ts_common.errors import ConfigurationError
from ts_common.model import is_topic_name
from ts_common.wording import counted
from tsctl.archive_options import chooser
from tsctl.gc.due import Rule

_STRICT: Final = ConfigDict(frozen=True, extra="forbid")


def _least(text: str) -> AfterValidator:
    """Return a validator of times in milliseconds."""
    least = parse_milliseconds(text)

    def validated(value: int) -> int:
        if value < least:
            raise ValueError(f"{text} or more is expected")
        return value

    return AfterValidator(validated)


def _check_topic(value: str) -> str:
    if not value:
        raise ValueError("an empty text matches no topic")
    try:
        chooser([value])
    except ConfigurationError as error:
        raise ValueError("; ".join(error.problems)) from error
    return value


@dataclass(frozen=True, slots=True)
class TopicKeeping:
    """What a running cluster keeps of a topic, on its brokers and in its own remote tier.

    Attributes:
        retention_ms: None: without a limit by time.
        retention_bytes: of a partition; None: without a limit by size.
    """

    retention_ms: int | None
    retention_bytes: int | None

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> "TopicKeeping":
        """Return what a cluster keeps.

        Args:
            settings: of the topic, with those of the broker and defaults. A topic that is only compacted has no
                limits, whatever its other settings are.

        Raises:
            ValueError: a limit is no number.
        """
        if "delete" not in settings.get("cleanup.policy", "").replace(" ", "").split(","):
            return cls(None, None)
        limits = [int(settings.get(name, "-1")) for name in ("retention.ms", "retention.bytes")]
        return cls(*(limit if limit >= 0 else None for limit in limits))


class ReadBy(BaseModel):
    """A reader that segments wait for; one of the keys."""

    model_config = _STRICT

    table: str | None = Field(
        None, min_length=1, description="A table of `tsctl tables`, by its name, as in backup.orders."
    )
    checkpoint: Annotated[str, AfterValidator(check_store)] | None = Field(
        None, description="The checkpoint of a Spark stream that reads the archive: its location, as in s3://lake/cp."
    )
    group: str | None = Field(None, min_length=1, description="A consumer group of the Kafka endpoint.")
    kafka_group: str | None = Field(
        None, min_length=1, description="A consumer group of the running cluster; with `--bootstrap-server`."
    )

    @model_validator(mode="after")
    def _is_one(self) -> "ReadBy":
        named = self.model_dump(exclude_none=True)
        if len(named) != 1:
            raise ValueError(f"one of {', '.join(type(self).model_fields)} is expected in each entry")
        return self

    def __str__(self) -> str:
        ((kind, name),) = self.model_dump(exclude_none=True).items()
        return f"{kind} {name}"


class TopicRule(BaseModel):
    """What is due of some topics."""

    model_config = _STRICT

    topics: Annotated[
        tuple[Annotated[str, AfterValidator(_check_topic)], ...],
        Field(min_length=1),
        BeforeValidator(listed),
        LIST,
    ] = Field(description=r"Names, or regular expressions of whole names, as in events\..*; one or a list.")
    max_age: Annotated[Milliseconds, _least("1h")] | None = Field(
        None,
        description="A segment is due once it is older. Its age counts from its greatest timestamp, or from its "
        "shipping if that was earlier. At least 1h.",
    )
    max_size: Annotated[Size, Field(ge=1024)] | None = Field(
        None, description="A segment of a partition is due once the segments after it have as many bytes."
    )
    as_in_kafka: bool = Field(
        False,
        description="true: the topic's `retention.ms` and `retention.bytes` in the running cluster are max_age and "
        "max_size; with `--bootstrap-server`. A topic that the cluster only compacts, or does not have, keeps "
        "everything.",
    )
    keep: bool = Field(False, description="true: nothing is due. No other key is given with it.")
    least_time: Milliseconds | None = Field(
        None,
        description="A segment stays for so long after its shipping, whatever else the rule has. Default: the time of "
        "the policy.",
    )
    until_read_by: tuple[ReadBy, ...] = Field(
        (), description="Readers; a segment stays until each has read it. One entry for each reader."
    )
    longest_wait: Annotated[Milliseconds, _least("1h")] = Field(
        "30d",
        validate_default=True,
        description="A reader that holds segments back and has not moved for so long is an error of the run, and the "
        "segments stay. Default: 30d.",
    )

    @model_validator(mode="after")
    def _agrees(self) -> "TopicRule":
        given = [name for name in type(self).model_fields if name in self.model_fields_set and name != "topics"]
        limits = [name for name in ("max_age", "max_size") if getattr(self, name) is not None]
        if self.keep and (others := [name for name in given if name != "keep"]):
            raise ValueError(f"keep: true: {', '.join(others)} would have no effect; remove one of the two")
        if self.as_in_kafka and limits:
            raise ValueError(f"as_in_kafka: true: {', '.join(limits)} would contradict it; remove one of the two")
        if not (self.keep or self.as_in_kafka or limits):
            raise ValueError("max_age, max_size, as_in_kafka: true, or keep: true is needed")
        if "longest_wait" in given and not self.until_read_by:
            raise ValueError("longest_wait: until_read_by is missing, so there is no wait")
        if len({*map(str, self.until_read_by)}) < len(self.until_read_by):
            raise ValueError("until_read_by: a reader is given twice")
        return self

    @cached_property
    def _accepts(self) -> Callable[[str], bool]:
        return chooser(self.topics)

    def matches(self, topic: str) -> bool:
        """Return whether the rule is one of a topic."""
        return self._accepts(topic)

    @property
    def needs_kafka(self) -> bool:
        """Whether the rule needs the running cluster."""
        return self.as_in_kafka or any(each.kafka_group is not None for each in self.until_read_by)

    def resolve(self, kafka: TopicKeeping | None) -> Rule:
        """Return when segments of a topic are due.

        Args:
            kafka: what the running cluster keeps of the topic; None if it does not have the topic. Only `as_in_kafka`
                uses it. The caller has checked that the cluster can be reached.
        """
        least = self.least_time or 0
        if not self.as_in_kafka:
            return Rule(self.max_age, self.max_size, least)
        return Rule(None, None, least) if kafka is None else Rule(kafka.retention_ms, kafka.retention_bytes, least)


class Fuse(BaseModel):
    """Bounds of one run. A run whose deletions exceed one of them deletes nothing and fails."""

    model_config = _STRICT

    objects: Annotated[int, Field(ge=1)] | None = Field(None, description="Number of objects. Default: no bound.")
    bytes: Annotated[Size, Field(ge=1)] | None = Field(None, description="Bytes of objects. Default: no bound.")
    share: Share | None = Field(
        "50%",
        validate_default=True,
        description="Share of the bytes that partitions with a rule, and incarnations that are over, have in the "
        "store; 100% for no bound. Default: 50%.",
    )

    def blown(self, objects: int, size: int, whole: int | None = None) -> str | None:
        """Return which bound a number of objects exceeds, as a sentence's end; None if it exceeds no bound.

        Args:
            objects: number of objects.
            size: bytes of these objects.
            whole: bytes of all segments; None if unknown.
        """
        if self.objects is not None and objects > self.objects:
            return f"due: {counted(objects, 'object')}, and fuse.objects is {self.objects:,}"
        if self.bytes is not None and size > self.bytes:
            return f"due: {counted(size, 'byte')}, and fuse.bytes is {self.bytes:,}"
        # The objects include indexes and gap records, so 100% would not be without a bound.
        if self.share is not None and self.share < 1 and whole and size > self.share * whole:
            return f"{size / whole:.0%} of the bytes are due, and fuse.share is {self.share:.0%}"
        return None


class OwnObjects(BaseModel):
    """How long objects stay that retention and repair write themselves."""

    model_config = _STRICT

    plans: Annotated[Milliseconds, _least("7d")] = Field(
        "90d", validate_default=True, description="Plans of deletions that are complete or void. Default: 90d."
    )
    deletion_log: Annotated[Milliseconds, _least("7d")] = Field(
        "400d", validate_default=True, description="Lists of what was deleted. Default: 400d."
    )
    repairs: Annotated[Milliseconds, _least("7d")] = Field(
        "90d",
        validate_default=True,
        description="Requests of repairs and their answers, complete or not. Default: 90d.",
    )
    probes: Annotated[Milliseconds, _least("7d")] = Field(
        "30d",
        validate_default=True,
        description="Objects that agents and `tsctl gc check` write to check the store. Default: 30d.",
    )


class DeletedTopics(BaseModel):
    """When everything of a former incarnation is due: its topic was deleted, or created again."""

    model_config = _STRICT

    after: Annotated[Milliseconds, _least("1d")] = Field(
        description="Time since the end of the incarnation, at least 1d and the grace. Of the topic's rule only "
        "keep: true still counts."
    )


class Policy(BaseModel):
    """A policy as a whole."""

    model_config = _STRICT

    grace: Annotated[Milliseconds, _least("1h")] = Field(
        "20h",
        validate_default=True,
        description="Time for readers: objects are deleted so long after the archive's start has moved beyond them. "
        "Choose less than the interval between two runs. Default: 20h, at least 1h.",
    )
    fuse: Fuse = Field({}, validate_default=True, description="Bounds of one run.")
    least_time: Milliseconds = Field(
        "7d", validate_default=True, description="The least_time of the rules that do not set it. Default: 7d."
    )
    rules: tuple[TopicRule, ...] = Field(
        description="The first rule that matches a topic applies to it. A topic without a rule keeps everything."
    )
    own: OwnObjects = Field({}, validate_default=True, description="How long objects of retention itself stay.")
    deleted_topics: DeletedTopics | None = Field(
        None, description="What is due of topics that no longer exist. Default: nothing."
    )

    @field_validator("rules")
    @classmethod
    def _have_least_times(cls, rules: tuple[TopicRule, ...], info: ValidationInfo) -> tuple[TopicRule, ...]:
        least = info.data.get("least_time")
        return tuple(
            rule if rule.least_time is not None else rule.model_copy(update={"least_time": least}) for rule in rules
        )

    @model_validator(mode="after")
    def _agrees(self) -> "Policy":
        for at, rule in enumerate(self.rules):
            for text in rule.topics:
                earlier = (
                    number
                    for number, other in enumerate(self.rules[:at])
                    if text in other.topics or (is_topic_name(text) and other.matches(text))
                )
                if (number := next(earlier, None)) is not None:
                    raise ValueError(f"rules.{at}: {text}: rules.{number} matches first; move the narrower rule up")
        if self.own.plans <= self.grace:
            raise ValueError("own.plans: more than grace is expected, since a plan is executed after it")
        if self.deleted_topics is not None and self.deleted_topics.after < self.grace:
            raise ValueError("deleted_topics.after: grace or more is expected")
        return self

    def rule_for(self, topic: str) -> TopicRule | None:
        """Return the rule of a topic; None if the topic keeps everything because no rule matches."""
        return next((rule for rule in self.rules if rule.matches(topic)), None)

    @property
    def needs_kafka(self) -> bool:
        """Whether a rule needs the running cluster."""
        return any(rule.needs_kafka for rule in self.rules)

    def as_json(self) -> dict[str, Any]:
        """Return JSON values: times in milliseconds, sizes in bytes, shares as fractions."""
        return self.model_dump(mode="json")

    def digest(self) -> str:
        """Return the SHA-256 of the values in hexadecimal; policies of equal meaning can have several."""
        text = json.dumps(self.as_json(), separators=(",", ":"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def read_policy(path: Path) -> Policy:
    """Return the policy of a file.

    Raises:
        ConfigurationError: it is missing, is no YAML, or is wrong; with every problem.
    """
    return parse_policy(read_yaml(path), str(path))


def parse_policy(content: Any, source: str) -> Policy:
    """Return a policy by the values of a file.

    Args:
        content: of the file.
        source: its name for messages.

    Raises:
        ConfigurationError: with every problem.
    """
    return validate(Policy, content, source)
