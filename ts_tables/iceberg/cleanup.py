"""Removal of files that no commit has: of tasks that ran twice, and of plans that did not land.

A change without an answer can land as long as the head is where its plan began. So the files of a plan are removed only
after the head has left that snapshot; then the catalog refuses the change. A file that any snapshot refers to stays.
"""

from collections.abc import Iterable

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from ts_tables.iceberg.head import PLAN, STATE_OBJECT
from ts_tables.iceberg.storage import TableFiles
from ts_tables.iceberg.transaction import HEAD


def remove_leftovers(catalog: Catalog, name: tuple[str, ...], *, of: str | None = None) -> int:
    """Remove files of plans that can no longer land, and return their number.

    A run notes its plan before it writes a state. So states are listed before the notes, and one without a note is of a
    plan that has ended. The notes are listed before the head is read. The head only moves forward, so a plan that
    began from another one has ended. In the other order a plan of a run that began in between would seem to have ended.

    Args:
        of: a plan whose change was never sent: it is removed wherever the head is.

    Raises:
        CorruptData: the note of a plan cannot be read.
        Exception: what pyiceberg's file systems raise.
    """
    files = TableFiles.of(catalog.load_table(name))
    states = files.states()
    plans = list(files.plans())
    table = catalog.load_table(name)
    ref = table.metadata.refs.get(HEAD)
    head = None if ref is None else ref.snapshot_id
    removed = 0
    ended = {plan for plan, began in plans if began != head} | ({of} if of is not None else set())
    for plan in ended:
        paths = [*files.data_of(plan), *files.metadata_of(plan)]
        kept = _referenced(table, plan) if paths else frozenset()
        for path in paths:
            if path not in kept:
                files.remove(path)
                removed += 1
        if not files.data_of(plan):
            files.remove_data_directory(plan)
    if ended:
        for path in _unneeded(table, states, {plan for plan, _ in plans} - ended):
            files.remove(path)
            removed += 1
    for plan in ended:
        files.end(plan)
    return removed


def _unneeded(table: Table, states: Iterable[str], under_way: Iterable[str]) -> list[str]:
    """Return the paths of states that no snapshot names, and that are of no plan under way."""
    needed = {_summary(each, STATE_OBJECT) for each in table.metadata.snapshots}
    names = [f"state-{plan}." for plan in under_way]
    return [path for path in states if path not in needed and not any(name in path for name in names)]


def _referenced(table: Table, plan: str) -> frozenset[str]:
    """Return the paths that snapshots refer to; of the plan's own snapshot only, if it is there."""
    own = [each for each in table.metadata.snapshots if _summary(each, PLAN) == plan]
    found: set[str] = set()
    seen: set[str] = set()
    for snapshot in own or table.metadata.snapshots:
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path in seen:
                continue
            seen.add(manifest.manifest_path)
            found.add(manifest.manifest_path)
            if own and manifest.added_snapshot_id != snapshot.snapshot_id:
                continue
            found |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io)}
    return frozenset(found)


def _summary(snapshot: object, name: str) -> str | None:
    summary = getattr(snapshot, "summary", None)
    return None if summary is None else summary.additional_properties.get(name)
