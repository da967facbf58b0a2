"""Shows the answers of the Spark program, and checks them."""

from collections.abc import Mapping
from typing import Any

from dev.demo.query import Question
from dev.demo.screen import Screen

_VALUE_SHOWN = 100  # characters


class DemoFailedError(RuntimeError):
    """A check of the demo failed. The message names it."""


def tell_answer(screen: Screen, question: Question, facts: Mapping[str, Any]) -> None:
    """Show one answer.

    Raises:
        DemoFailedError: it differs from what was produced.
    """
    _TELLERS[facts["answer"]](screen, question, facts)


def _started(screen: Screen, _: Question, facts: Mapping[str, Any]) -> None:
    screen.say(f"Spark {facts['version']}, two cores of this machine.")


def _rows(screen: Screen, question: Question, facts: Mapping[str, Any]) -> None:
    screen.say("Rows per partition:")
    screen.table(("partition", "rows", "first offset", "last offset", "first time", "last time"), facts["rows"])
    found = {row[0]: row[1] for row in facts["rows"]}
    expected = {number: end for number, end in enumerate(question.ends) if end}
    if found != expected:
        raise DemoFailedError(f"rows by partition are {found}; the ends are {expected}")


def _range(screen: Screen, question: Question, facts: Mapping[str, Any]) -> None:
    screen.say("A time range, 12:00 to 13:00:")
    screen.code(
        [f'.option("startingTimestamp", {question.first_ms}).option("endingTimestamp", {question.end_ms})'],
    )
    screen.say(f"{facts['rows']:,} rows; the journal has {facts['journal']:,}.")
    if facts["rows"] != facts["journal"] or facts["outside"]:
        raise DemoFailedError(
            f"the time range gave {facts['rows']} rows, {facts['outside']} of them with a timestamp outside of it; "
            f"{facts['journal']} were produced in it"
        )


def _sample(screen: Screen, question: Question, facts: Mapping[str, Any]) -> None:
    screen.say("A sample:")
    for partition, offset, clock, key, value, headers in facts["rows"]:
        about = f"key {key or 'null'}, headers {headers or 'null'}"
        shown = value if len(value) <= _VALUE_SHOWN else f"{value[:_VALUE_SHOWN]}..."
        screen.code([f"{question.topic}-{partition} offset {offset}, {clock}, {about}", f"  {shown}"])


def _comparison(screen: Screen, question: Question, facts: Mapping[str, Any]) -> None:
    kinds = ("missing", "unexpected", "twice", "different")
    said = ", ".join(f"{facts[kind]:,} {kind}" for kind in kinds)
    screen.say("Every row against the journal, field by field:")
    screen.say(f"{facts['equal']:,} equal, {said}.", "bold")
    if any(facts[kind] for kind in kinds):
        fields = ", ".join(f"{name} {count:,}" for name, count in facts["fields"].items() if count)
        examples = "; ".join(f"{question.topic}-{row[0]} offset {row[1]} {row[2]}" for row in facts["examples"])
        raise DemoFailedError(f"rows differ from the journal: {said}; fields: {fields or 'none'}; first: {examples}")
    if facts["equal"] != sum(question.ends):
        raise DemoFailedError(f"{facts['equal']} rows were compared, {sum(question.ends)} were expected")


_TELLERS = {"started": _started, "rows": _rows, "range": _range, "sample": _sample, "comparison": _comparison}
