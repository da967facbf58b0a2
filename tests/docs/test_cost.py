"""docs/cost.md: its commands on a real archive with a real agent; its tables list every key, item and option."""

import json
import re
from pathlib import Path

from dev.local.forks import write_command
from tests.docs.commands import CHECKOUT, Shell, blocks
from tests.docs.conftest import Beside
from tsctl.cost.bill import Item
from tsctl.cost.prices import Prices, StorageClass, read_prices

PAGE = CHECKOUT / "docs/cost.md"


def test_the_commands_of_the_page_run(beside: Beside, tmp_path: Path) -> None:
    """A change has its columns, and the JSON contains the objects in the bucket."""
    assert beside.archive.cluster.s3 is not None
    places = {"/etc/ts-uploader/conf": str(beside.config)}
    write_command(tmp_path / "tsctl", "tsctl")
    shell = Shell(tmp_path, places, tmp_path, beside.archive.cluster.s3.environment())
    (block,) = blocks(PAGE, language="sh")
    text = shell.run(block)
    plain, document = text.partition("\n{")[0], json.loads("{" + text.partition("\n{")[2])
    assert plain.count("requests: an estimate by segments of the last 30 days") == 2
    assert "ONCE" in plain
    keys = beside.archive.partition_keys()
    stored = [info for info in beside.archive.store.list() if f"{keys.partition}/" in info.key and ".log" in info.key]
    logs = [part for part in document["usage"] if part["kind"] == "log"]
    assert sum(part["objects"] for part in logs) == len(stored)
    assert sum(part["size"] for part in logs) == sum(info.size for info in stored)


def test_the_page_lists_every_key_of_the_file() -> None:
    """In order, and whether it is required."""
    text = PAGE.read_text()
    tables = [part.partition("\n\n")[0] for part in re.split(r"^\| key.*\n.*\n", text, flags=re.MULTILINE)[1:]]
    assert [re.findall(r"^\| `(\w+)` \| (yes)? ?\| .+ \|$", table, re.MULTILINE) for table in tables] == [
        [(name, "yes" if field.is_required() else "") for name, field in model.model_fields.items()]
        for model in (Prices, StorageClass)
    ]


def test_the_page_has_a_formula_for_every_item() -> None:
    """Those of a month in a table, those of a change in the other."""
    formulas = PAGE.read_text().partition("\n## Formulas")[2].partition("\n## The price file")[0]
    assert {item.value for item in Item} - set(re.findall(r"`([a-z ]+)`", formulas)) == set()


def test_the_files_of_the_page_are_price_files(tmp_path: Path) -> None:
    """A store of one's own without requests to pay."""
    (own,) = blocks(PAGE, language="yaml")
    (tmp_path / "own.yaml").write_text(own.text)
    assert read_prices(tmp_path / "own.yaml").of("STANDARD").storage_per_gb_month == 0.006
