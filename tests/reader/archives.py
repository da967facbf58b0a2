"""Archives that a test makes, and their scans."""

from typing import Any

from tests.made_archive import MadeArchive
from ts_reader import Archive, Scan


class ScannedArchive(MadeArchive):
    """A made archive with scans of it."""

    @property
    def opened(self) -> Archive:
        """The archive as a user opens it; all decoding is done in this process."""
        return Archive(self.location, self.keys.cluster, workers=1)

    def scan(self, topic: Any = "t", **arguments: Any) -> Scan:
        """Return a scan."""
        return self.opened.scan(topic, **arguments)

    def rows(self, topic: Any = "t", **arguments: Any) -> list[dict[str, Any]]:
        """Return the rows of a scan."""
        rows: list[dict[str, Any]] = self.scan(topic, **arguments).to_table().to_pylist()
        return rows

    def offsets(self, topic: Any = "t", **arguments: Any) -> list[int]:
        """Return the offsets of a scan's rows."""
        return [row["offset"] for row in self.rows(topic, columns=["offset"], **arguments)]
