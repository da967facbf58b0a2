"""Every page: its links and the names of code exist; its commands are run, or a reason is given here."""

import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.commands import CHECKOUT, blocks
from ts_common.config.config_page import reference_page as configuration_page
from ts_endpoint import cli_page as endpoint_cli_page
from ts_endpoint.status.metric_families import FAMILIES, PREFIX
from ts_uploader import cli_page
from ts_uploader.metrics.metrics_page import families
from tsctl import cli_page as tsctl_cli_page

DOCS = CHECKOUT / "docs"
PAGES = sorted([CHECKOUT / "README.md", *DOCS.glob("*.md")])
_BESIDE_README = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
_CODE = ("*.md", "Makefile", "conf/**/*", "deploy/**/*", "dev/**/*", "tests/**/*.py", "ts*/**/*.py", "*.toml")
_ENDINGS = ("", "_total", "_info", "_bucket", "_sum", "_count")
_RUNNABLE = {"sh", "bash", "python", "sql"}
# Pages with blocks for a shell or an interpreter: the test that runs them, or the reason why no test does.
_RUN_BY = {
    "docs/consumer.md": "tests/consumer/test_page.py",
    "docs/parsed-tables.md": "tests/tables/test_parsed_page.py",
    "docs/cost.md": "tests/docs/test_cost.py",
    "docs/cold-storage.md": "tests/tsctl/commands/test_thaw.py",
    "docs/deploy.md": "tests/operator/test_quick_start.py",
    "docs/endpoint.md": "tests/endpoint/test_page.py",
    "docs/examples.md": "tests/spark/test_examples.py",
    "docs/quick-start.md": "tests/operator",
    "docs/running-the-endpoint.md": "tests/monitoring/test_endpoint_files.py",
    "docs/reader.md": "tests/reader/test_page.py",
    "docs/repair.md": "tests/docs/test_runbook.py",
    "docs/runbook.md": "tests/docs/test_runbook.py",
    "docs/table-examples.md": "tests/tables/spark/test_examples_page.py",
    "docs/tables.md": "tests/tables/test_page.py",
    "docs/spark-clusters.md": "tests/spark/clusters/test_cluster_page.py",
    "docs/tsctl.md": "tests/operator/test_broken_archives.py",
    "docs/upgrade.md": "tests/faults/fleet/test_upgrade_page.py",
}
_NOT_RUN = {
    "README.md": "the reader of docs/spark.md, with a bucket that does not exist; docs/examples.md runs similar ones",
    "docs/store.md": "a class with a bucket of its own; tests/common/endpoints/test_provider.py loads such a one",
    "docs/kubernetes.md": "kubectl of a cluster; tests/deploy/test_strimzi.py runs the sed and reads the values",
    "docs/monitoring.md": "a class without a server to send to; tests/monitoring/test_reporters.py loads such a one",
    "docs/spark.md": "readers with buckets that do not exist; docs/examples.md runs similar ones",
}


def prose(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


@cache
def names_of_tests() -> frozenset[str]:
    """Return the names of test functions and of their files."""
    files = list((CHECKOUT / "tests").rglob("test_*.py"))
    functions = {name for file in files for name in re.findall(r"^ *def (test_\w+)", file.read_text(), re.MULTILINE)}
    return frozenset(functions | {file.name for file in files})


@cache
def keys() -> tuple[str, ...]:
    """Return a regular expression for each key of the configuration."""
    told = re.findall(r"^\| `([^`=]+)", configuration_page(), re.MULTILINE)
    return tuple(re.escape(key).replace(r"\*", ".*") for key in told)


@cache
def options() -> frozenset[str]:
    """Return the options of the programs, and those that every command has."""
    told = cli_page.section() + tsctl_cli_page.section() + endpoint_cli_page.section()
    return frozenset(re.findall(r"(?<![\w-])--[a-z][a-z-]*", told)) | {"--help", "--version", "--install-completion"}


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors that GitHub makes of headings: lower case, without punctuation, blanks as dashes."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    return frozenset(re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain)


def ids(page: Path) -> str:
    """Return the path of a page in the checkout."""
    return str(page.relative_to(CHECKOUT))


every_page = pytest.mark.parametrize("page", PAGES, ids=ids)


@pytest.mark.parametrize("page", [*PAGES, *(CHECKOUT / name for name in _BESIDE_README)], ids=ids)
def test_each_link_leads_somewhere(page: Path) -> None:
    """Files, pictures and headings; not addresses of the internet."""
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        if not file.exists() or (anchor and anchor not in anchors(file.resolve())):
            broken.append(target)
    assert broken == []


@every_page
def test_no_two_headings_of_a_page_have_one_name(page: Path) -> None:
    """A link would lead to the first one."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    assert len(anchors(page)) == len(headings), [one for one in headings if headings.count(one) > 1]


@every_page
def test_each_file_that_is_named_exists(page: Path) -> None:
    """These are `tests/...`, `ts_uploader/...` and others, in backticks; not what a command makes, as `make dist`."""
    made = re.findall(r"^/(\w+)/$", (CHECKOUT / ".gitignore").read_text(), re.MULTILINE)
    folders = {path.name for path in CHECKOUT.iterdir() if path.is_dir() and re.fullmatch(r"[a-z_]+", path.name)}
    named = re.findall(rf"`((?:{'|'.join(folders.difference(made))})/[\w./*-]*)", prose(page))
    assert [name for name in named if not list(CHECKOUT.glob(name.rstrip("/.")))] == []


@every_page
def test_each_test_that_is_named_exists(page: Path) -> None:
    """It is `test_...`, of a function or a file."""
    assert set(re.findall(r"`(test_\w+(?:\.py)?)`", prose(page))) - names_of_tests() == set()


@every_page
def test_each_key_of_the_configuration_that_is_named_exists(page: Path) -> None:
    """No page names a key that the agent would reject."""
    rooms = r"ts\.segment\.uploader|storage\.service|metrics\.reporter|metrics\.partitions"
    named = re.findall(rf"\b(?:{rooms})[a-z0-9.]*[a-z0-9](?:\.[<*])?", page.read_text())
    unknown = [
        key
        for key in named
        if not key.endswith((".<", ".*"))
        if not any(re.fullmatch(pattern, key) or pattern.startswith(re.escape(key)) for pattern in keys())
    ]
    assert unknown == []


@every_page
def test_each_metric_that_is_named_exists(page: Path) -> None:
    """In full with its ending, or as the beginning of several names with a star."""
    names = [family.name for family in families()] + [f"{PREFIX}_{family.name}" for family in FAMILIES]
    known = {name + ending for name in [*names, f"{PREFIX}_build"] for ending in _ENDINGS}
    named = re.findall(r"\b((?:ts_uploader|ts_endpoint)_[a-z_]*[a-z_])(?!\.py)\b(\*?)", page.read_text())
    begun = {name for name, star in named if star or name.endswith("_")}
    assert {name for name, _ in named} - begun - known == set()
    assert [name for name in begun if not any(one.startswith(name) for one in known)] == []


@every_page
def test_each_option_of_our_commands_that_is_named_exists(page: Path) -> None:
    """On lines that call `ts-uploader`, `ts-endpoint` or `tsctl`."""
    joined = page.read_text().replace("\\\n", " ")
    lines = [
        line
        for line in joined.splitlines()
        if re.match(r"\s*(?:sudo -u \S+ )?\S*(?:ts-uploader|ts-endpoint|tsctl) ", line)
    ]
    named = {option for line in lines for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", line.partition(" #")[0])}
    assert named - options() == set()


@every_page
def test_each_runnable_block_is_run_or_has_a_reason(page: Path) -> None:
    """Blocks in a language that readers copy and run; those in Python at least compile."""
    runnable = [block for block in blocks(page) if block.language in _RUNNABLE] if "```" in page.read_text() else []
    if runnable and ids(page) not in _NOT_RUN:
        assert ids(page) in _RUN_BY
        assert (CHECKOUT / _RUN_BY[ids(page)]).exists()
    for block in runnable:
        if block.language == "python":
            compile(block.text, f"{page.name}:{block.line}", "exec")


def test_each_page_that_code_names_exists() -> None:
    """Errors, findings, alerts, units, scripts and docstrings lead to a page, and to a heading of it."""
    files = {file for pattern in _CODE for file in CHECKOUT.glob(pattern) if file.is_file() and file.suffix != ".pyc"}
    named = [
        (str(file.relative_to(CHECKOUT)), page, anchor)
        for file in sorted(files)
        for page, anchor in re.findall(r"\bdocs/([\w-]+\.md)(?:#([\w-]+))?", file.read_text(errors="replace"))
    ]
    assert len(named) > 100
    missing = [
        one
        for one in named
        for page in [DOCS / one[1]]
        if not page.exists() or (one[2] and one[2] not in anchors(page))
    ]
    assert missing == []


def test_every_page_is_in_the_index() -> None:
    """Readers find pages by the index."""
    led = set(re.findall(r"\]\(([\w-]+\.md)[)#]", (DOCS / "README.md").read_text()))
    assert {page.name for page in DOCS.glob("*.md")} - {"README.md"} == led
