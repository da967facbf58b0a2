"""Versions of what stands in the store, for fleets in which not every agent and reader is of one release.

A later release may add fields, and whoever does not know them passes over them: that needs no version. What an older
release would read wrongly, or destroy by writing its own over it, bears a version: `"version":2` in the JSON of the
commit, of a topic's incarnations and of a cache object, `ts-version` in the metadata of a `.log`. An absent version is
1. Version 2 of the commit and of `log.start` has a lineage (`ts_common.archive.lineage`); nothing else bears a version
today.

A version that is not known is refused, neither guessed at nor written over: the partition waits until the agent beside
it is upgraded, and a query fails. A cache object is a cache: readers do without it, and agents let it stand.
"""

from collections.abc import Mapping

from ts_common.errors import NewerFormat

VERSION = 1


def check_version(fields: Mapping[str, object], key: str, known: int = VERSION) -> None:
    """Go on only where an object is of a version that is known here.

    Args:
        fields: of the object's JSON.
        key: of the object, for the message.
        known: the latest version that is known here of this kind of object.

    Raises:
        NewerFormat: it is of a later version.
        ValueError: its version is no number from 1 on.
    """
    found = fields.get("version", VERSION)
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise ValueError(f"version {found!r} is no number from 1 on")
    if found > known:
        raise NewerFormat(
            f"{key} is written in version {found} of its format by a later release, and this one knows version "
            f"{known}: upgrade this one; the object stays as it is"
        )
