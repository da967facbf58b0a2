"""YAML files that users write."""

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict, Field

from ts_common.config.yaml_files import parse_yaml, read_yaml, validate
from ts_common.errors import ConfigurationError


class Inner(BaseModel):
    """A part of a file."""

    model_config = ConfigDict(extra="forbid")

    number: int
    other_name: str = Field("", alias="other.name")


class Outer(BaseModel):
    """A file."""

    model_config = ConfigDict(extra="forbid")

    parts: dict[str, Inner] = {}
    several: tuple[Inner, ...] | None = None
    single: Inner | None = None


@pytest.mark.parametrize(
    "data",
    [
        b"a: [",
        b"a: 1\na: 2",
        b"a: !!python/object/apply:os.system [ls]",
        b"\x00",
        b"\xff",
        b"[" * 20_000,
        b"a: !!bool x",
        b"a: !!int _",
        b'a: "\\UFFFFFFFF"',
        b"!!omap [!!omap : b]",
        b"? - : - b\n: c",
    ],
    ids=lambda data: repr(data[:10]),
)
def test_what_is_no_yaml_is_refused(tmp_path: Path, data: bytes) -> None:
    """In one line, also if a name is given twice, or it wants to run code."""
    path = tmp_path / "file.yaml"
    path.write_bytes(data)
    with pytest.raises(ConfigurationError, match="it is no YAML") as found:
        read_yaml(path)
    assert len(str(found.value).splitlines()) == 2


def test_levels_have_a_bound() -> None:
    """In both styles, and in a text that does not end."""
    for begin, end in (("[", "]"), ("{a: ", "}"), ("- ", "")):
        assert parse_yaml(begin * 63 + "x" + end * 63)
        with pytest.raises(ValueError, match="nested more than 64 levels"):
            parse_yaml(begin * 64 + "x" + end * 64)
    with pytest.raises(ValueError, match="nested more than 64 levels"):
        parse_yaml("[" * 20_000)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """One that is missing, with the caller's remedy; a directory; one that is too large."""
    with pytest.raises(ConfigurationError, match="no file; add a user"):
        read_yaml(tmp_path / "file.yaml", missing="no file; add a user")
    with pytest.raises(ConfigurationError, match="cannot read the file"):
        read_yaml(tmp_path)
    (tmp_path / "file.yaml").write_text("a: 12345")
    with pytest.raises(ConfigurationError, match="it has more than 7 bytes"):
        read_yaml(tmp_path / "file.yaml", most_bytes=7)
    assert read_yaml(tmp_path / "file.yaml", most_bytes=8) == {"a": 12345}


def test_every_mistake_is_named_with_its_place() -> None:
    """A name that is unknown, with the nearest name of its own place in the file."""
    content = parse_yaml(
        "{partz: {}, parts: {a: {nummer: 1}, b: {number: x, othername: y}, c: 5}, several: [{number: 1}, {numbr: 1}],"
        " single: {parts: 1, number: 1}}"
    )
    with pytest.raises(ConfigurationError) as found:
        validate(Outer, content, "file", ["further: it is wrong"])
    assert found.value.problems == (
        "further: it is wrong",
        "parts.a.number: it is missing",
        "parts.a.nummer: this name is unknown; did you mean number?",
        "parts.b.number: input should be a valid integer, unable to parse string as an integer",
        "parts.b.othername: this name is unknown; did you mean other.name?",
        "parts.c: names with values are expected",
        "partz: this name is unknown; did you mean parts?",
        "several.1.number: it is missing",
        "several.1.numbr: this name is unknown; did you mean number?",
        "single.parts: this name is unknown",
    )


def test_a_list_is_shown_where_one_is_missing() -> None:
    """With the name of its place."""
    with pytest.raises(ConfigurationError, match=r"several: a list is expected, as several: \[\.\.\.\]"):
        validate(Outer, {"several": 5}, "file")
    with pytest.raises(ConfigurationError, match="the file: names with values are expected"):
        validate(Outer, [], "file")


def test_a_right_file_with_a_further_problem_is_refused() -> None:
    """The caller has found it."""
    with pytest.raises(ConfigurationError, match="it is wrong"):
        validate(Outer, {}, "file", ["it is wrong"])
    assert validate(Outer, {"single": {"number": 1}}, "file").single == Inner.model_validate({"number": 1})


def test_the_agent_runs_without_ruamel() -> None:
    """Its hosts do not have the package."""
    program = "import sys; sys.modules['ruamel'] = None; import ts_uploader.agent, ts_common.config.cluster_config"
    subprocess.run([sys.executable, "-c", program], check=True)
