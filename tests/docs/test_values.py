"""Lists and tables that people write: they have exactly the values, keys and arguments that the code has."""

import inspect
import re
import tomllib
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from tests.docs.commands import CHECKOUT
from ts_consumer import configuration
from ts_consumer.configuration import OnGap
from ts_consumer.modes import TierMode
from ts_endpoint.requests import configs
from ts_reader import Archive
from ts_reader.scan import Scan
from ts_uploader.health.conditions import AgentState, Condition
from tsctl.archive_rows import SegmentState
from tsctl.commands.gaps import GapState
from tsctl.drill.metrics import GAUGES as DRILL_GAUGES
from tsctl.gc.metrics import GAUGES as GC_GAUGES
from tsctl.repair.run import RepairStatus

DOCS = CHECKOUT / "docs"


def section(page: str, heading: str) -> str:
    """Return the text of a section with its subsections; of the whole page without a heading."""
    text = (DOCS / page).read_text()
    if not heading:
        return text
    level, _, _ = heading.partition(" ")
    after = text.partition(f"\n{heading}\n")[2]
    assert after, (page, heading)
    return re.split(rf"^#{{1,{len(level)}}} ", after, maxsplit=1, flags=re.MULTILINE)[0]


def first_cells(text: str, title: str) -> list[str]:
    """Return the names in backticks in the first column of a table, whose title row begins with `title`."""
    table = text.partition(f"\n| {title} |")[2].partition("\n\n")[0]
    assert table, title
    return [name for row in table.splitlines()[2:] for name in re.findall(r"`([^`]+)`", row.split(" | ")[0])]


@pytest.mark.parametrize(
    ("page", "heading", "title", "states"),
    [
        ("consumer.md", "## Modes", "mode", TierMode),
        ("repair.md", "## Lost and damaged segments", "`STATUS`", RepairStatus),
        ("tsctl.md", "## ls", "state of a segment", SegmentState),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_table_has_each_state(page: str, heading: str, title: str, states: type[StrEnum]) -> None:
    """No more and no less."""
    assert set(first_cells(section(page, heading), title)) == {state.value for state in states}


def test_the_states_of_gaps_are_described() -> None:
    """Two of them are in the text below the table."""
    assert {state.value for state in GapState} <= set(re.findall(r"`([a-z-]+)`", section("tsctl.md", "## gaps")))


def test_the_page_of_the_consumer_has_each_key_and_its_default() -> None:
    """A key that is renamed would be passed to librdkafka, which rejects it."""
    text = section("consumer.md", "## From confluent_kafka in three lines")
    keys = {key for key in first_cells(text, "key") if not key.startswith("storage.service")}
    assert keys == set(configuration._OWN)
    shown = dict(re.findall(r"^\| `(\S+)` \| (.*) \|$", text, re.MULTILINE))
    for option in (configuration._REFRESH, configuration._REPORT):
        assert shown[option.name].endswith(f"; {option.default}"), option.name
    for option in (configuration._BUFFERED, configuration._BATCH):
        assert shown[option.name].endswith(f"; {option.default >> 20} MiB"), option.name
    assert {*re.findall(r"`(\w+)`", shown[configuration.GAP_KEY])} == {each.value for each in OnGap}


@pytest.mark.parametrize(
    ("heading", "title", "function", "left_out"),
    [
        ("## Ten lines to the first query", "argument of `Archive`", Archive.__init__, {"wording", "warn"}),
        ("## Scans", "argument", Archive.scan, {"corrupt_column"}),
        ("## Follow new segments", "argument", Scan.follow, set()),
    ],
    ids=["Archive", "scan", "follow"],
)
def test_the_page_of_the_reader_has_each_argument(
    heading: str, title: str, function: object, left_out: set[str]
) -> None:
    """`corrupt_column` is part of the row of `mode`; two arguments are for other rooms."""
    assert callable(function)
    arguments = set(inspect.signature(function).parameters) - {"self"} - left_out
    assert set(first_cells(section("reader.md", heading), title)) == arguments


def test_monitoring_has_each_condition_by_what_it_makes_of_readiness() -> None:
    """An operator who waits for `/readyz` sees which conditions end the wait."""
    text = section("monitoring.md", "### The condition of an agent")
    listed, _, rest = text.partition("[The metric]")[2].partition("make an agent unready")
    unready = {one.value for one in Condition if not AgentState(one, "").is_ready}
    assert set(re.findall(r"`(\w+)`", listed)) == unready
    assert set(re.findall(r"`(\w+)`", rest)) >= {one.value for one in Condition} - unready


def test_the_metrics_of_retention_are_those_of_the_page() -> None:
    """In the table of the schedule."""
    named = first_cells(section("retention.md", "## Schedule and metrics"), "metric")
    assert set(named) == {family.name for family in GC_GAUGES.families()}


def test_the_metrics_of_drills_are_those_of_the_page() -> None:
    """In the section of the drill."""
    named = first_cells(section("restore.md", "## The drill"), "metric")
    assert set(named) == {family.name for family in DRILL_GAUGES.families()}


def test_the_settings_of_an_archive_are_those_that_the_endpoint_returns() -> None:
    """With the values that the page names."""
    (sentence,) = re.findall(r"DescribeConfigs has .*?\. ", section("endpoint.md", ""), re.DOTALL)
    named = dict(re.findall(r"`([a-z.]+)(?:=([^`]*))?`", sentence))
    known = {setting.topic: setting.value for setting in configs._SETTINGS if setting.topic}
    assert set(named) == set(known)
    assert {name: value for name, value in named.items() if value and known[name] != value} == {}


def project() -> dict[str, Any]:
    """Return the project's own table of `pyproject.toml`."""
    read: dict[str, Any] = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    return read


def test_each_page_names_the_versions_of_python_that_the_package_supports() -> None:
    """The same range everywhere; EMR's page has the range of its release."""
    numbers = [re.search(r"Python :: (3\.\d+)$", one) for one in project()["classifiers"]]
    versions = [found[1] for found in numbers if found]
    texts = {page.name: page.read_text() for page in (CHECKOUT / "README.md", *DOCS.glob("*.md"))}
    named = [(name, *each) for name, text in texts.items() for each in re.findall(r"Python (3\.\d+) to (3\.\d+)", text)]
    assert len(named) > 8
    assert [each for each in named if each[1:] != (versions[0], versions[-1])] == []


def test_the_page_of_clusters_has_the_ranges_of_the_package() -> None:
    """Each package of the extra has its range there, and so has Spark."""
    (row,) = re.findall(r"^\| the package with the extra `spark` \|.*$", section("spark-clusters.md", ""), re.MULTILINE)
    extras = project()["optional-dependencies"]
    ranges = dict(
        re.findall(r"^([\w-]+)>=([\d.]+)", "\n".join([*extras["spark"], *project()["dependencies"]]), re.MULTILINE)
    )
    shown = dict(re.findall(r"([\w-]+) ([\d.]+) or later", row))
    assert {re.split(r"[>=<]", one)[0] for one in extras["spark"]} <= set(shown)
    assert shown == {name: ranges[name] for name in shown}
    least, beyond = re.findall(r"^pyspark>=4\.(\d+),<4\.(\d+)$", "\n".join(extras["pyspark"]), re.MULTILINE)[0]
    assert f"4.{least} to 4.{int(beyond) - 1};" in section("spark-clusters.md", "## What every way needs")


def code_of_tests() -> str:
    """Return the code of tests and of the servers that they start, without the tests of pages."""
    files = [file for room in ("tests", "dev") for file in (CHECKOUT / room).rglob("*.py")]
    return "\n".join(file.read_text() for file in files if file.parent != Path(__file__).parent).lower()


@pytest.mark.parametrize(
    ("page", "sentence", "word"),
    [
        ("endpoint.md", "Flink was not tried", "flink"),
        ("how-it-works.md", "No test here runs a broker with a remote tier", "remote.log.storage.system.enable=true"),
        ("kubernetes.md", "no node runs them", "kubeadm"),
    ],
)
def test_what_a_page_calls_untried_is_in_no_test(page: str, sentence: str, word: str) -> None:
    """A new test makes such a sentence stale."""
    assert sentence in " ".join((DOCS / page).read_text().split())
    assert word not in code_of_tests()


def test_what_a_page_calls_missing_is_missing() -> None:
    """A new command, or a new dependency, makes such a sentence stale."""
    assert "the extra `hdfs` is empty today" in " ".join((DOCS / "store.md").read_text().split())
    assert project()["optional-dependencies"]["hdfs"] == []
