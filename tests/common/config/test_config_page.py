from ts_common.config.cluster_config import KEYS, is_changeable
from ts_common.config.config_page import reference_page
from ts_common.config.java_keys import JAVA_KEYS
from ts_common.config.zookeeper_options import OPTIONS, PREFIX


def rows() -> dict[str, list[str]]:
    """Return the cells of each row of the page's tables, by the key in the first."""
    cells = [[cell.strip() for cell in line.split(" | ")] for line in reference_page().splitlines() if "| `" in line]
    return {row[0].removeprefix("| ").strip("`"): row[1:] for row in cells}


def test_each_key_has_a_row() -> None:
    """The tables contain the keys of clusters, of ZooKeeper and of the Java uploader."""
    keys = {*KEYS, *(PREFIX + option.name for option in OPTIONS), *(key.pattern for key in JAVA_KEYS)}
    assert keys <= set(rows())


def test_a_row_names_type_bounds_unit_and_default() -> None:
    """The type column is derived from the annotation of a field, its bounds and its unit."""
    uploader = "ts.segment.uploader."
    found = {key: cells[:2] for key, cells in rows().items()}
    assert found[uploader + "upload.thread.count"] == ["whole number from 1 to 64", "`3`"]
    assert found[uploader + "upload.timeout.ms"] == ["whole number from 100, ms", "`60000`"]
    assert found[uploader + "leadership.watcher.poll.interval.seconds"] == ["number above 0, s", ""]
    assert found[uploader + "offset.reset.strategy"] == ["EARLIEST or LATEST", "`EARLIEST`"]
    assert found[uploader + "kafka.topics.include"] == ["patterns", "`.*`"]
    assert found[uploader + "http.allowed.hosts"] == ["host names", ""]
    assert found[uploader + "s3.prefix.entropy.bits"] == ["whole number to 128", "none"]
    assert found["metrics.partitions"] == ["true or false", "`false`"]
    assert found["storage.service.endpoint.url"] == ["text", ""]


def test_exactly_the_changeable_keys_are_marked() -> None:
    """The page marks each key that a reload applies, and no other."""
    marked = {key for key, cells in rows().items() if "Changeable while the agent runs." in cells[-1]}
    assert marked == {key for key, name in KEYS.items() if is_changeable(name)}
