"""Names of log events: those that pages and tests name exist in the code.

`test_runbook.py` checks the `grep`s in blocks of commands. A check that a log lacks an event of another name would
always succeed.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.docs.commands import CHECKOUT
from ts_uploader.metrics.metrics_page import families
from tsctl.drill.metrics import GAUGES as DRILL_GAUGES
from tsctl.erase.metrics import GAUGES as ERASE_GAUGES
from tsctl.gc.metrics import GAUGES as GC_GAUGES

_ROOMS = ("ts_common", "ts_uploader", "ts_spark", "ts_reader", "ts_tables", "ts_endpoint", "tsctl")
_METHODS = {"debug", "info", "warning", "error", "exception", "critical"}
_NAME = re.compile(r"[a-z]+(?:_[a-z0-9]+)+")
# Pages for operators and contributors. Others name functions of Spark, or tests; `make docs` writes the metrics.
PAGES = [
    CHECKOUT / "docs" / f"{name}.md"
    for name in (
        *("architecture", "contributing", "deploy", "glossary", "how-it-works", "kubernetes"),
        "endpoint",
        *("monitoring", "protocol", "quick-start", "repair", "runbook", "security", "sizing"),
        *("store", "tsctl", "upgrade"),
    )
]
SOAK = CHECKOUT / "tests/soak/test_soak.py"


@cache
def _words() -> frozenset[str]:
    """Return the words of the code, and the names of metrics: those of agents without their prefix."""
    metrics = {family.name.removeprefix("ts_uploader_") for family in families()}
    metrics |= {each.name for gauges in (GC_GAUGES, DRILL_GAUGES, ERASE_GAUGES) for each in gauges.families()}
    return frozenset(metrics | set(re.findall(r"\w+", sources())))


@cache
def sources() -> str:
    """Return the code, and the files of `deploy/`."""
    files = [file for room in (*_ROOMS, "dev", "deploy") for file in sorted((CHECKOUT / room).rglob("*"))]
    return "\n".join(file.read_text() for file in files if file.suffix in {".py", ".yml", ".yaml", ".json", ".service"})


@cache
def events() -> frozenset[str]:
    """Return the first arguments of calls such as `log.warning`."""
    texts = [file.read_text() for room in _ROOMS for file in (CHECKOUT / room).rglob("*.py")]
    return frozenset(name for text in texts if "log." in text for name in _logged(ast.parse(text)))


def _logged(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        match node:
            case ast.Call(func=ast.Attribute(value=logger, attr=method), args=[event, *_]) if method in _METHODS:
                if ast.unparse(logger).endswith("log"):
                    yield from _texts(event)


def _texts(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _absent_from_logs(module: ast.Module) -> Iterator[str]:
    """Yield each name in a test such as `"thread_died" not in line`."""
    for node in ast.walk(module):
        match node:
            case ast.Compare(left=ast.Constant(value=str(name)), ops=[ast.NotIn()], comparators=[log]):
                if _NAME.fullmatch(name) and re.search(r"(?:\b|_)(?:logs?|line)\b", ast.unparse(log)):
                    yield name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_name_in_prose_is_in_the_code(page: Path) -> None:
    """Names of events, labels and fields, in backticks; metrics without their prefix."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    named = set(re.findall(rf"`({_NAME.pattern})`", prose))
    elsewhere = ("ts_uploader_", "ts_endpoint_", "test_")  # `test_links.py` checks them
    named = {name for name in named if not name.startswith(elsewhere)}
    bare = {name: name.removeprefix("ts_tables_").removesuffix("_total") for name in named}
    assert {name for name, word in bare.items() if word not in _words()} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_event_of_a_grep_in_prose_exists(page: Path) -> None:
    """Such as `journalctl -u ts-uploader | grep segment_shipped_late`."""
    lines = re.findall(r"`([^`\n]*\bgrep [^`\n]*)`", page.read_text())
    named = {name for line in lines if "journalctl" in line for name in _NAME.findall(line.partition("grep")[2])}
    assert named - events() == set()


def test_each_event_that_a_test_finds_missing_exists() -> None:
    """Otherwise the event was renamed, and the assertion no longer checks anything."""
    texts = [(file, file.read_text()) for file in (CHECKOUT / "tests").rglob("*.py") if file != Path(__file__)]
    some = [(file, text) for file, text in texts if re.search(r'"\w+"\s+not\s+in\b', text)]  # a tree is slow
    named = {(file.name, name) for file, text in some for name in _absent_from_logs(ast.parse(text))}
    assert {name for file, name in named if file == SOAK.name} >= {"thread_died", "gap_recorded"}
    assert {(file, name) for file, name in named if name not in events()} == set()


def test_each_event_that_the_soak_counts_exists() -> None:
    """All names in the soak's own checks and in its summary are events."""
    named = {text for text in _texts(ast.parse(SOAK.read_text())) if _NAME.fullmatch(text)}
    assert len(named) >= 5
    assert named - events() == set()
