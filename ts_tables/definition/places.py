"""The places that a file of tables names: what is accepted, and which may not contain another.

A place that is relative to the directory of a command would be another one for a scheduler: it would find no tables,
or write their files again elsewhere.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

_SQLITE: Final = re.compile(r"sqlite(?:\+\w+)?:///?(?P<path>.*)")


def check_absolute(name: str, value: str) -> None:
    """Check that a location of Iceberg's is a URL, or an absolute path.

    Raises:
        ValueError: it is neither.
    """
    if "://" not in value and not value.startswith(("/", "file:/")):
        raise ValueError(f"{name}: {value!r} is no URL, as s3://lake/warehouse is")


def check_catalog(value: Any) -> Any:
    """Return the properties of a catalog.

    Raises:
        ValueError: its database or its warehouse is relative.
    """
    if not isinstance(value, Mapping):
        return value
    uri, warehouse = str(value.get("uri") or ""), str(value.get("warehouse") or "")
    sqlite = _SQLITE.fullmatch(uri)
    if sqlite is not None and not sqlite["path"].startswith(("/", "file:/")):
        raise ValueError(
            f"uri: {uri} has no absolute path; four slashes begin one, as in sqlite:////var/lib/ts-uploader/tables.db"
        )
    kind = str(value.get("type") or "").lower() or uri.partition(":")[0]
    if warehouse and kind not in {"", "rest", "http", "https"}:  # of a REST catalog it can be a name
        check_absolute("warehouse", warehouse)
    return value


def overlaps(archive: Iterable[str], warehouse: str | None, locations: Sequence[str]) -> list[str]:
    """Return a sentence for each place of tables that an archive is in, or that is in an archive.

    Args:
        archive: the URLs of its stores.
        warehouse: of the catalog; it may contain the archive, since tables are below it.
    """
    outside = "choose a place outside of it"
    found = []
    for store in archive:
        if warehouse and is_within(warehouse, store):
            found.append(f"the warehouse {warehouse} is in the archive {store}: {outside}")
        found += [
            f"the location {location} and the archive {store} overlap: {outside}"
            for location in locations
            if is_within(location, store) or is_within(store, location)
        ]
    return found


def is_within(inner: str, outer: str) -> bool:
    """Return whether a place is another one, or in it."""
    inner, outer = inner.rstrip("/"), outer.rstrip("/")
    return inner == outer or inner.startswith(f"{outer}/")
