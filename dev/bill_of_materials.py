"""The bill of materials of a release: CycloneDX 1.6 in JSON, from the lock files of the extras.

A component is a locked package, with its hashes, its licence of `requirements/licences.toml`, and the extras that
install it. `dependencies` are the lock files' own, from their lines `# via`. Only the standard library is needed. The
names of the fields are those of the specification, https://cyclonedx.org/docs/1.6/json/.
"""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote
from uuid import NAMESPACE_URL, uuid5

PROJECT: Final = "ts-uploader"
_PINNED: Final = re.compile(r"(?P<name>[\w.-]+)==(?P<version>[^\s;]+)(?: ; (?P<marker>[^\\]+?))? \\$")
_HASH: Final = re.compile(r"    --hash=sha256:(?P<hash>[0-9a-f]{64})")
_VIA: Final = re.compile(r"    #(?: via|  ) (?P<name>[\w.][\w.-]*)")  # one in the line, or each in a line after `# via`


@dataclass(slots=True)
class Locked:
    """A locked package.

    Attributes:
        marker: of the platforms that need it; None: all.
        hashes: SHA-256 of each of its files.
        users: names of what requires it.
        extras: those that install it.
    """

    name: str
    version: str
    marker: str | None
    hashes: set[str] = field(default_factory=set)
    users: set[str] = field(default_factory=set)
    extras: set[str] = field(default_factory=set)

    @property
    def reference(self) -> str:
        """Return its package URL."""
        return package_url(self.name, self.version)


def package_url(name: str, version: str) -> str:
    """Return the identifier of a package on Python's index (https://github.com/package-url/purl-spec)."""
    return f"pkg:pypi/{name.lower().replace('_', '-')}@{quote(version, safe='')}"


def read_locks(files: Mapping[str, Path]) -> list[Locked]:
    """Return the packages of lock files in order of name and version.

    Args:
        files: the lock file of each extra.

    Raises:
        ValueError: a line has an unknown form.
    """
    found: dict[tuple[str, str], Locked] = {}
    for extra, file in sorted(files.items()):
        package: Locked | None = None
        for line in file.read_text().splitlines():
            if match := _PINNED.match(line):
                key = match["name"], match["version"]
                package = found.setdefault(key, Locked(*key, match["marker"]))
                package.extras.add(extra)
            elif package is not None and (match := _HASH.match(line)):
                package.hashes.add(match["hash"])
            elif package is not None and (match := _VIA.match(line)):
                package.users.add(match["name"])
            elif line.strip() not in ("", "# via", "#   -c (workspace)"):  # a constraint of pyproject.toml
                raise ValueError(f"{file.name}: unknown line: {line!r}; expected those of uv pip compile")
    return [found[key] for key in sorted(found)]


def bill_of_materials(
    version: str, wheel: str, locked: Sequence[Locked], licences: Mapping[str, str], seconds: int
) -> str:
    """Return the document.

    Args:
        version: of the release.
        wheel: SHA-256 of its wheel, in hexadecimal.
        licences: SPDX expression by package.
        seconds: time of the release since 1970.
    """
    own = {
        "type": "application",
        "bom-ref": package_url(PROJECT, version),
        "name": PROJECT,
        "version": version,
        "hashes": _hashes({wheel}),
        **_licences(licences.get(PROJECT, "Apache-2.0")),
        "purl": package_url(PROJECT, version),
    }
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, wheel)}",
        "version": 1,
        "metadata": {"timestamp": datetime.fromtimestamp(seconds, UTC).isoformat(), "component": own},
        "components": [_component(package, licences) for package in locked],
        "dependencies": _dependencies(package_url(PROJECT, version), locked),
    }
    return json.dumps(document, indent=1) + "\n"


def read_licences(file: Path) -> dict[str, str]:
    """Return the SPDX expression of each package of `requirements/licences.toml`."""
    return {name: str(licence) for name, licence in tomllib.loads(file.read_text()).items()}


def _component(package: Locked, licences: Mapping[str, str]) -> dict[str, object]:
    facts = [("extra", extra) for extra in sorted(package.extras)]
    if package.marker is not None:
        facts.append(("marker", package.marker))
    return {
        "type": "library",
        "bom-ref": package.reference,
        "name": package.name,
        "version": package.version,
        "hashes": _hashes(package.hashes),
        **_licences(licences.get(package.name)),
        "purl": package.reference,
        "properties": [{"name": f"{PROJECT}:{name}", "value": value} for name, value in facts],
    }


def _hashes(hashes: set[str]) -> list[dict[str, str]]:
    return [{"alg": "SHA-256", "content": each} for each in sorted(hashes)]


def _licences(licence: str | None) -> dict[str, object]:
    if licence is None:
        return {}
    return {"licenses": [{"expression": licence} if " " in licence else {"license": {"id": licence}}]}


def _dependencies(own: str, locked: Sequence[Locked]) -> list[dict[str, object]]:
    needed: dict[str, set[str]] = {own: set(), **{package.reference: set() for package in locked}}
    references: dict[str, list[str]] = {PROJECT: [own]}
    for package in locked:
        references.setdefault(package.name, []).append(package.reference)
    for package in locked:
        for user in package.users:
            for reference in references[user]:
                needed[reference].add(package.reference)
    return [{"ref": reference, "dependsOn": sorted(needed[reference])} for reference in sorted(needed)]
