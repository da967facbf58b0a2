"""The bill of materials of a release: valid, complete, and with a licence of each package."""

import json
import re
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from license_expression import get_spdx_licensing  # type: ignore[import-untyped]

from dev import dist
from dev.bill_of_materials import read_licences, read_locks

REQUIREMENTS = Path(__file__).parents[2] / "requirements"
NO_EXTRA = {"dev", "build", "pack"}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the bill of a wheel."""
    target = tmp_path_factory.mktemp("dist")
    wheel = target / "ts_uploader-0-py3-none-any.whl"
    wheel.write_bytes(b"any")
    return dist.write_bill(target, wheel).read_text()


@pytest.fixture(scope="module")
def bill(text: str) -> dict[str, Any]:
    """Return its fields."""
    fields: dict[str, Any] = json.loads(text)
    return fields


def pinned(extra: str) -> set[str]:
    """Return the package URLs of a lock file."""
    found = re.findall(r"^([\w.-]+)==([^\s;]+)", (REQUIREMENTS / f"{extra}.txt").read_text(), re.MULTILINE)
    return {f"pkg:pypi/{name}@{version}" for name, version in found}


def test_it_is_valid(text: str) -> None:
    """By the specification's own schema, without further fields."""
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None


def test_each_extra_has_the_packages_of_its_lock_file(bill: dict[str, Any]) -> None:
    """Each with its hashes and its licence."""
    extras = {file.stem for file in REQUIREMENTS.glob("*.txt")} - NO_EXTRA
    for extra in extras:
        has = {"name": "ts-uploader:extra", "value": extra}
        assert {each["purl"] for each in bill["components"] if has in each["properties"]} == pinned(extra)
    for component in bill["components"]:
        assert component["hashes"], component
        assert component["licenses"], component


def test_the_release_leads_to_every_package(bill: dict[str, Any]) -> None:
    """By the edges of the lock files."""
    edges = {each["ref"]: each["dependsOn"] for each in bill["dependencies"]}
    todo = reached = {bill["metadata"]["component"]["bom-ref"]}
    while todo:
        todo = {needed for each in todo for needed in edges[each]} - reached
        reached = reached | todo
    assert reached == edges.keys()
    assert len(reached) == len(bill["components"]) + 1


def test_each_licence_is_the_one_that_the_package_declares() -> None:
    """An SPDX expression; a package without one in its metadata has what its licence file is."""
    licences = read_licences(REQUIREMENTS / "licences.toml")
    locked = read_locks({file.stem: file for file in REQUIREMENTS.glob("*.txt") if file.stem not in NO_EXTRA})
    assert licences.keys() == {package.name for package in locked}
    spdx = get_spdx_licensing()
    assert [errors for licence in licences.values() if (errors := spdx.validate(licence).errors)] == []
    declared = {
        name: licence
        for each in metadata.distributions()
        if (name := re.sub("[-_.]+", "-", each.name).lower()) in licences
        for licence in each.metadata.get_all("License-Expression", [])
    }
    assert len(declared) > 40
    assert declared == {name: licences[name] for name in declared}
