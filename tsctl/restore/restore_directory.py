"""The directory with the plan and the records of a restore, which all hosts see or get copies of."""

from pathlib import Path
from typing import TypeVar

from ts_common.errors import QueryError
from tsctl.restore.documents import Created, Document, Done, GroupsSet, HostRecord, RestorePlan

_T = TypeVar("_T", bound=Document)


class RestoreDirectory:
    """The directory with the plan and the records of a restore.

    Raises:
        QueryError: it has no plan.
        CorruptData, NewerFormat: a file of it is damaged, or of a later release.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        plan = RestorePlan.load(self.plan_file(path))
        if plan is None:
            raise QueryError(f"{path}: no plan.json; make it with `tsctl restore plan`, and copy it to this host")
        self.plan = plan

    @staticmethod
    def plan_file(path: Path) -> Path:
        """Return the path of the plan."""
        return path / "plan.json"

    def created(self) -> Created:
        """Return the record of the created topics.

        Raises:
            QueryError: the file does not exist.
        """
        found = self._own(Created.load(self.created_file))
        if found is None:
            raise QueryError(
                f"{self.created_file}: missing; run `tsctl restore create` first, and copy the file to this host"
            )
        return found

    @property
    def created_file(self) -> Path:
        """The path of the record of the created topics."""
        return self.path / "created.json"

    @property
    def mirror_file(self) -> Path:
        """The path of MirrorMaker's settings; the file exists if the plan is restored by MirrorMaker."""
        return self.path / "mirror.properties"

    @property
    def groups_file(self) -> Path:
        """The path of the record that the groups' offsets were set."""
        return self.path / "groups.json"

    def groups_set(self) -> GroupsSet | None:
        """Return the record that the groups' offsets were set; None if the file does not exist."""
        return self._own(GroupsSet.load(self.groups_file))

    def host_file(self, broker: int) -> Path:
        """Return the path of a host's record."""
        return self.path / f"broker-{broker}.json"

    def host(self, broker: int) -> HostRecord | None:
        """Return a host's record; None if the file does not exist."""
        return self._own(HostRecord.load(self.host_file(broker)))

    def check_unplaced(self) -> None:
        """Check that no host has placed its files: a repeated `create` would fence a topic that has its records.

        Raises:
            QueryError: a host has.
        """
        for broker in self.plan.brokers:
            record = self.host(broker)
            if record is not None and record.done is Done.PLACED:
                raise QueryError(
                    f"broker {broker} has placed its files ({self.host_file(broker).name}), so the topics were created "
                    "before; continue with `place` or `move`, or begin again with another directory"
                )

    def check_hosts(self, least: Done) -> None:
        """Check that every host has done a step, and that the replicas of each partition are equal.

        Raises:
            QueryError: a host has not, or replicas differ.
        """
        records = {broker: self.host(broker) for broker in self.plan.brokers}
        enough = set(list(Done)[list(Done).index(least) :])
        behind = [broker for broker, record in records.items() if record is None or record.done not in enough]
        if behind:
            step = "fetch" if least is Done.FETCHED else "place"
            names = ", ".join(f"broker {each} ({self.host_file(each).name})" for each in behind)
            raise QueryError(
                f"not {least}: {names}; "
                f"run `tsctl restore {step}` there, and copy its record to {self.path}. A leader without files makes "
                "its followers delete theirs"
            )
        for name, partition in self.plan.partitions.items():
            found = {each: record.partitions.get(name) for each in partition.replicas if (record := records[each])}
            if len(set(found.values())) != 1 or None in found.values():
                raise QueryError(
                    f"{name}: the hosts have different files: {found}; remove `restore/` of this partition on them, "
                    "and run `tsctl restore fetch` again"
                )

    def _own(self, found: _T | None) -> _T | None:
        if found is not None and found.plan != self.plan.plan:
            raise QueryError(
                f"{self.path}: a record is of the plan {found.plan}, and plan.json has the id {self.plan.plan}; use "
                "one directory for each plan"
            )
        return found
