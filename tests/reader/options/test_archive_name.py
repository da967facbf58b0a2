"""The archive that options of a command line name."""

from pathlib import Path

import pytest

from tests.made_archive import MadeArchive
from ts_common.archive.layout import Layout
from ts_common.errors import ConfigurationError, QueryError
from ts_reader.options.archive_name import name_archive, settled

URL = "s3://bucket/base/prefix"


def written(directory: Path, cluster: str, bits: int = 5) -> Path:
    """Write a cluster's file."""
    file = directory / f"{cluster}.properties"
    file.write_text(f"storage.service.endpoint.url={URL}\nts.segment.uploader.s3.prefix.entropy.bits={bits}\n")
    return file


def test_a_file_names_locations_cluster_and_entropy_bits(tmp_path: Path) -> None:
    """Or its directory, if that has one file; of several `--cluster` chooses one."""
    file = written(tmp_path, "prod")
    for name in (name_archive(file, None), name_archive(tmp_path, None), name_archive(tmp_path, None, "prod")):
        assert [endpoint.location for endpoint in name.endpoints] == [URL]
        assert (name.keys.cluster, name.keys.entropy_bits, name.bits_are_set) == ("prod", 5, True)
        assert name.lies_in("any", name.endpoints[0])
    written(tmp_path, "test", bits=3)
    assert name_archive(tmp_path, None, "test").keys.entropy_bits == 3


def test_a_url_names_a_location_and_needs_a_cluster() -> None:
    """The entropy bits are those of the archive, unless an option sets them."""
    name = name_archive(None, f"{URL}/", "prod")
    assert ([endpoint.location for endpoint in name.endpoints], name.bits_are_set) == ([URL], False)
    assert name_archive(None, URL, "prod", 7).keys.entropy_bits == 7
    assert name.option == "--entropy-bits="


@pytest.mark.parametrize(
    ("config", "url", "cluster", "bits", "expected"),
    [
        (None, None, None, None, "give --config FILE_OR_DIR or the variable TS_UPLOADER_CONFIG, or"),
        (None, URL, None, None, "--cluster is missing: --url requires it"),
        (None, URL, "a/b", None, "--cluster=a/b: the cluster.s part of the keys is expected: letters, digits"),
        (None, URL, "prod", 129, "--entropy-bits=129: a whole number from 0 to 128"),
        (None, "ftp://x", "prod", None, "--url=ftp://x: "),
        ("prod.properties", URL, None, None, "remove --url and --entropy-bits"),
        ("prod.properties", None, "test", None, "--config names the file of prod; remove one of the two"),
        ("prod.txt", None, None, None, "expected a file named <clusterId>.properties"),
        (".", None, None, None, "choose one with --cluster"),
        ("empty", None, None, None, "the directory has no such file"),
    ],
)
def test_a_mistake_is_named_with_its_option(
    tmp_path: Path, config: str | None, url: str | None, cluster: str | None, bits: int | None, expected: str
) -> None:
    """With the way out."""
    for name in ("prod", "other"):
        written(tmp_path, name)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigurationError, match=expected):
        name_archive(None if config is None else tmp_path / config, url, cluster, bits)


def test_the_archives_layout_settles_the_entropy_bits(tmp_path: Path) -> None:
    """A number that contradicts it is an error."""
    archive = MadeArchive(tmp_path / "archive")
    archive.store.put(archive.keys.layout, Layout(5, "prod", 0).encode())
    assert settled(name_archive(None, archive.location, "prod"), [archive.store]).keys.entropy_bits == 5
    with pytest.raises(QueryError, match="--entropy-bits="):
        settled(name_archive(None, archive.location, "prod", 4), [archive.store])


def test_a_variable_names_the_archive_if_no_option_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the value of `--config`; options, an empty variable and `--url` are before it."""
    written(tmp_path, "prod")
    monkeypatch.setenv("TS_UPLOADER_CONFIG", str(tmp_path))
    assert name_archive(None, None).keys.cluster == "prod"
    assert name_archive(None, "file:///else", "other").keys.cluster == "other"
    with pytest.raises(ConfigurationError, match="TS_UPLOADER_CONFIG sets the location and the entropy bits"):
        name_archive(None, None, None, 3)
    monkeypatch.setenv("TS_UPLOADER_CONFIG", "")
    with pytest.raises(ConfigurationError, match="no archive is named"):
        name_archive(None, None)
