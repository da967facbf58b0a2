"""The policy of retention, a YAML file: which topics' segments are due, and what waits for readers.

conf/retention.example.yaml has each key. The first rule that matches a topic applies to it. A topic without a rule
keeps everything. No key that makes something due has a default. A table that has read a topic keeps what it still
needs, unless the rule ignores it by its name.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
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
from ts_common.durations import DAY
from ts_common.errors import ConfigurationError
from ts_common.model import is_topic_name
from ts_common.wording import counted
from tsctl.archive_options import chooser
from tsctl.gc.due import Rule

_SMALL_SIZE: Final = 1 << 30
_GENERATION: Final = "_g"  # before the number of a table's generation, in the name of its claims


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


def is_of_table(name: str, table: str) -> bool:
    """Return whether claims of this name are a table's: its own, or those of one of its generations."""
    base, _, number = name.rpartition(_GENERATION)
    return name == table or (base == table and number.isdecimal())


@dataclass(frozen=True, slots=True)
class TopicKeeping:
    """What a running cluster keeps of a topic, on its brokers and in its own remote tier.

    Attributes:
        retention_ms: None: without a limit by time.
        retention_bytes: of a partition; None: without a limit by size.
        compacts: whether it removes records that a later one with the same key replaced.
    """

    retention_ms: int | None
    retention_bytes: int | None
    compacts: bool = False

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> "TopicKeeping":
        """Return what a cluster keeps.

        Args:
            settings: of the topic, with those of the broker and defaults. A topic that is only compacted has no
                limits, whatever its other settings are.

        Raises:
            ValueError: a limit is no number.
        """
        policy = settings.get("cleanup.policy", "").replace(" ", "").split(",")
        if "delete" not in policy:
            return cls(None, None, "compact" in policy)
        age, size = (int(settings.get(name, "-1")) for name in ("retention.ms", "retention.bytes"))
        return cls(age if age >= 0 else None, size if size >= 0 else None, "compact" in policy)


_Hours = Annotated[Milliseconds, _least("1h")]
_Days = Annotated[Milliseconds, _least("1d")]
_Weeks = Annotated[Milliseconds, _least("7d")]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ReadBy(_Strict):
    """A reader that segments wait for; one of the keys."""

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


class TopicRule(_Strict):
    """What is due of some topics."""

    topics: Annotated[
        tuple[Annotated[str, AfterValidator(_check_topic)], ...],
        Field(min_length=1),
        BeforeValidator(listed),
        LIST,
    ] = Field(description=r"Names, or regular expressions of whole names, as in events\..*; one or a list.")
    max_age: _Hours | None = Field(
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
    compacted: bool = Field(
        False,
        description="true: limits by age and size also apply to a compacted topic, where an old record can be the "
        "only one of its key. Without it, such a topic is left out in doubt.",
    )
    confirm_small: bool = Field(
        False, description="true: a max_age below 1d or a max_size below 1GiB is meant, and no mistake."
    )
    until_read_by: tuple[ReadBy, ...] = Field(
        (),
        description="Readers; a segment stays until each has read it. One entry for each reader. A table that has "
        "read the topic counts without an entry.",
    )
    ignore_tables: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(listed), LIST] = Field(
        (), description="Tables of `tsctl tables` that keep no segments, by their names; one or a list."
    )
    longest_wait: _Hours = Field(
        "30d",
        validate_default=True,
        description="A reader that holds segments back and has not moved for so long is an error of the run, and the "
        "segments stay. Default: 30d.",
    )

    @model_validator(mode="after")
    def _has_one_limit(self) -> "TopicRule":
        given = self.model_fields_set - {"topics", "keep"}
        limits = [name for name in ("max_age", "max_size") if getattr(self, name) is not None]
        if self.keep and given:
            others = ", ".join(name for name in type(self).model_fields if name in given)
            raise ValueError(f"keep: true: {others} would have no effect; remove one of the two")
        if self.as_in_kafka and limits:
            raise ValueError(f"as_in_kafka: true: {', '.join(limits)} would contradict it; remove one of the two")
        if not (self.keep or self.as_in_kafka or limits):
            raise ValueError("max_age, max_size, as_in_kafka: true, or keep: true is needed")
        return self

    @model_validator(mode="after")
    def _is_meant(self) -> "TopicRule":
        small = ["max_age is below 1d"] if self.max_age is not None and self.max_age < DAY else []
        small += ["max_size is below 1GiB"] if self.max_size is not None and self.max_size < _SMALL_SIZE else []
        if small and not self.confirm_small:
            raise ValueError(f"{' and '.join(small)}: give more, or confirm_small: true if it is meant")
        return self

    @model_validator(mode="after")
    def _names_each_reader_once(self) -> "TopicRule":
        if len({*map(str, self.until_read_by)}) < len(self.until_read_by):
            raise ValueError("until_read_by: a reader is given twice")
        if both := [table for table in self.ignore_tables if self.names(table)]:
            raise ValueError(f"ignore_tables: until_read_by has {', '.join(both)} too; remove one of the two")
        return self

    @cached_property
    def _accepts(self) -> Callable[[str], bool]:
        return chooser(self.topics)

    def matches(self, topic: str) -> bool:
        """Return whether the rule is one of a topic."""
        return self._accepts(topic)

    def names(self, claims: str) -> bool:
        """Return whether `until_read_by` has the table with claims of this name."""
        return any(is_of_table(claims, each.table) for each in self.until_read_by if each.table is not None)

    def ignores(self, claims: str) -> bool:
        """Return whether `ignore_tables` has the table with claims of this name."""
        return any(is_of_table(claims, table) for table in self.ignore_tables)

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
            return Rule(self.max_age, self.max_size, least, self.compacted)
        kept = kafka or TopicKeeping(None, None)
        return Rule(kept.retention_ms, kept.retention_bytes, least, self.compacted)


class Fuse(_Strict):
    """Bounds of one run. If what is due exceeds one of them, nothing of it is hidden, and the run ends with 1."""

    objects: Annotated[int, Field(ge=1)] | None = Field(None, description="Number of objects. Default: no bound.")
    bytes: Annotated[Size, Field(ge=1)] | None = Field(None, description="Bytes of objects. Default: no bound.")
    share: Share | None = Field(
        "50%",
        validate_default=True,
        description="Share of the bytes that partitions with a rule, and incarnations that are over, have in the "
        "store. It also applies to each topic that loses more than one segment of a partition. 100% for no bound. "
        "Default: 50%.",
    )

    def blown(self, objects: int, size: int, whole: int | None = None) -> str | None:
        """Return which bound objects exceed, as a sentence's end; None if they exceed no bound.

        Args:
            whole: bytes of all segments; None if unknown.
        """
        if self.objects is not None and objects > self.objects:
            return f"due: {counted(objects, 'object')}, and fuse.objects is {self.objects:,}"
        if self.bytes is not None and size > self.bytes:
            return f"due: {counted(size, 'byte')}, and fuse.bytes is {self.bytes:,}"
        # The objects include indexes and gap records, so 100% would not be without a bound.
        if self.share is not None and self.share < 1 and whole and size > self.share * whole:
            share = f"{size / whole:.0%} of the bytes"
            return f"due: {counted(objects, 'object')} with {share}, and fuse.share is {self.share:.0%}"
        return None

    def blown_of_topic(self, objects: int, size: int, whole: int | None, most_of_a_partition: int) -> str | None:
        """Return as `blown` whether objects of one topic exceed the share; the other bounds are of the whole store.

        Args:
            most_of_a_partition: how many `.log` objects are due in the partition with most. A topic of few segments
                always loses a large share of them, so one of each partition is no mistake.
        """
        only_share = self.model_copy(update={"objects": None, "bytes": None})
        return None if most_of_a_partition <= 1 else only_share.blown(objects, size, whole)


class OwnObjects(_Strict):
    """How long objects stay that retention and repair write themselves."""

    reports: _Weeks = Field("400d", validate_default=True, description="Reports of runs. Default: 400d.")
    repairs: _Weeks = Field(
        "90d", validate_default=True, description="Requests of repairs and their answers. Default: 90d."
    )
    probes: _Weeks = Field(
        "30d",
        validate_default=True,
        description="What agents and `tsctl gc check` wrote to check the store. Default: 30d.",
    )


class SnapshotKeeping(_Strict):
    """Which metadata snapshots stay."""

    every: _Days = Field(description="All snapshots stay for so long; at least 1d.")
    hourly: _Days = Field(description="Then one of each hour stays for so long; at least `every`.")
    daily: _Days | None = Field(
        None,
        description="Then one of each day stays for so long, and each change of the cluster; at least `hourly`. "
        "Default: without an end.",
    )

    @model_validator(mode="after")
    def _ascends(self) -> "SnapshotKeeping":
        if not self.every <= self.hourly <= (self.hourly if self.daily is None else self.daily):
            raise ValueError("every <= hourly <= daily is expected")
        return self


class EndedTopics(_Strict):
    """When everything is due of a topic that was deleted or created again, or at the old place of one that moved."""

    after: _Days = Field(
        description="Time since the end of the incarnation, or since the newest object of an old place was written; at "
        "least 1d and the grace. Of the topic's rule only keep: true still counts."
    )


class Policy(_Strict):
    """A policy as a whole."""

    cluster: str = Field(description="The id of the cluster. A run of another cluster is an error.")
    grace: _Hours = Field(
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
    meta: SnapshotKeeping | None = Field(
        None, description="Which metadata snapshots stay. Default: all. While any hold of the cluster exists, all stay."
    )
    deleted_topics: EndedTopics | None = Field(
        None, description="What is due of topics that no longer exist. Default: nothing."
    )
    old_places: EndedTopics | None = Field(
        None, description="What is due of topics that moved to another endpoint, at their old places. Default: nothing."
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
        for name in ("deleted_topics", "old_places"):
            if (ended := getattr(self, name)) is not None and ended.after < self.grace:
                raise ValueError(f"{name}.after: grace or more is expected")
        return self

    def rule_for(self, topic: str) -> TopicRule | None:
        """Return the rule of a topic; None if the topic keeps everything because no rule matches."""
        return next((rule for rule in self.rules if rule.matches(topic)), None)

    @property
    def needs_kafka(self) -> bool:
        """Whether a rule needs the running cluster."""
        return any(rule.needs_kafka for rule in self.rules)


def useless_rules(policy: Policy, topics: Collection[str]) -> list[str]:
    """Return a problem for each text of a rule whose topics in the archive all match earlier rules first.

    A narrow rule before a wide one is the right order, even if the archive has only the narrow one's topics today. So
    one of the earlier rules must be wider: it matches another name too, a topic or a part of a topic's name.
    """
    problems = []
    for at, rule in enumerate(policy.rules):
        for text in rule.topics:
            accepts = chooser([text])
            mine = [topic for topic in topics if accepts(topic)]
            first = {next(n for n, each in enumerate(policy.rules) if each.matches(topic)) for topic in mine}
            if at not in first and any(_is_wider(policy.rules[each], accepts, mine, topics) for each in first):
                earlier = " and ".join(f"rules.{each}" for each in sorted(first))
                own = f"all of its topics ({len(mine):,}) match {earlier} first"
                problems.append(f"rules.{at}: {text}: {own}; move the narrower rule up")
    return problems


def _is_wider(rule: TopicRule, accepts: Callable[[str], bool], mine: Sequence[str], topics: Collection[str]) -> bool:
    """Return whether a text of a rule matches one of these topics, and also a name that is not accepted."""
    for other in (chooser([text]) for text in rule.topics):
        topic = next(filter(other, mine), None)
        if topic is not None:
            parts = (part for at in range(len(topic) + 1) for part in (topic[:at], topic[at:]))
            if any(other(name) and not accepts(name) for name in (*topics, *parts)):
                return True
    return False


def read_policy(path: Path) -> Policy:
    """Return the policy of a file.

    Raises:
        ConfigurationError: it is missing, is no YAML, or is wrong; with every problem.
    """
    return parse_policy(read_yaml(path), str(path))


def parse_policy(content: Any, source: str) -> Policy:
    """Return a policy by the values of a file; `source` is the file's name for messages.

    Raises:
        ConfigurationError: with every problem.
    """
    return validate(Policy, content, source)
