"""A cluster's properties file, as readers use it."""

from pathlib import Path

import pytest

from ts_common.errors import ConfigurationError
from ts_reader.reading.cluster_file import read_cluster_file


def written(directory: Path, *lines: str) -> Path:
    path = directory / "prod.properties"
    path.write_text("\n".join(("storage.service.endpoint.url=s3://bucket/base/", *lines)))
    return path


def test_the_file_names_the_cluster_and_where_each_topic_is(tmp_path: Path) -> None:
    """The cluster's id is the file's name; the location loses its last slash, so that equal ones compare equal."""
    path = written(
        tmp_path,
        "ts.segment.uploader.s3.prefix.entropy.bits=5",
        "ts.segment.uploader.stuck.after.ms=90000",
    )
    found = read_cluster_file(path)
    assert (found.keys.cluster, found.keys.entropy_bits) == ("prod", 5)
    assert found.stuck_after_seconds == 90
    assert found.endpoint("t").location == "s3://bucket/base"
    assert found.endpoints() == {found.endpoint("t")}


def test_no_entropy_bits_are_0_bits(tmp_path: Path) -> None:
    """The agent's -1 means none; readers build keys from 0."""
    assert read_cluster_file(written(tmp_path)).keys.entropy_bits == 0


def test_a_missing_or_wrong_file_is_a_configuration_error(tmp_path: Path) -> None:
    """The message names the file."""
    with pytest.raises(ConfigurationError, match=r"absent\.properties"):
        read_cluster_file(tmp_path / "absent.properties")
    with pytest.raises(ConfigurationError, match="entropy"):
        read_cluster_file(written(tmp_path, "ts.segment.uploader.s3.prefix.entropy.bits=many"))
