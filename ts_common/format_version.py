"""Versions of stored objects, for fleets with agents and readers of several releases.

A later release can add fields, which older releases ignore; that needs no version. If an older release would misread an
object, or destroy content by overwriting it, the object has a version: `"version":2` in the JSON of the commit, of a
topic's incarnations and of a cache object, `ts-version` in the metadata of a `.log`. A missing version is 1. Version 2
of the commit and of `log.start` has a lineage (`ts_common.archive.commit`), version 3 of `log.start` a list of erased
offsets. No other object has a version above 1. An unknown field of `log.start` is like an unknown version.

Readers and agents reject an unknown version, and never overwrite such an object. The partition waits until its agent is
upgraded, and a query fails. Readers ignore such a cache object, and agents keep it.
"""

from collections.abc import Mapping
from typing import Final

from ts_common.errors import NewerFormat

VERSION = 1
LINEAGE_VERSION = 2  # of a commit or `log.start` with a lineage
ERASED_VERSION = 3  # of a `log.start` with a list of erased offsets
# The latest version of each kind of object that this release reads. It writes lower ones where they suffice.
FORMATS: Final[Mapping[str, int]] = {
    "offset.wm": LINEAGE_VERSION,
    "log.start": ERASED_VERSION,
    "seal.json": VERSION,
    "seal": VERSION,
}


def check_version(fields: Mapping[str, object], key: str, known: int = VERSION) -> None:
    """Reject an object of a later version.

    Args:
        fields: the fields of the object's JSON.
        key: key of the object, for messages.
        known: the latest version of this kind of object that this release reads.

    Raises:
        NewerFormat: the object has a later version.
        ValueError: its version is not a whole number of at least 1.
    """
    found = fields.get("version", VERSION)
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise ValueError(f"version {found!r} is not a whole number of at least 1")
    if found > known:
        raise NewerFormat(
            f"{key} is written in version {found} of its format by a later release; this release reads version "
            f"{known}: upgrade this one; the object is kept"
        )
