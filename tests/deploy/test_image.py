"""deploy/Dockerfile, built without Docker: its COPY lines provide what its RUN lines need."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.image import Build, stages_of

CHECKOUT = Path(__file__).parents[2]
STAGES = stages_of((CHECKOUT / "deploy" / "Dockerfile").read_text())
# The module of each image that imports all that its work needs.
_WORKS = {"agent": "ts_uploader.agent", "tsctl": "tsctl.cli", "endpoint": "ts_endpoint.serving.endpoint"}
# `-m venv` makes an environment without pip, to save seconds. Its `pip` installs wheels. For a requirements file it
# checks that each package has a hash and the version of this checkout's environment, and then uses that environment.
_PYTHON = """\
#!/bin/bash
if [[ "$1 $2" != "-m venv" ]]; then exec {python} "$@"; fi
{python} -m venv --without-pip "$3"
sed "s,@VENV@,$3," "$(dirname "$0")/venv-pip" > "$3/bin/pip"
chmod +x "$3/bin/pip"
"""
_PIP = """\
#!{python}
import re, subprocess, sys
from importlib import metadata
from pathlib import Path
words = sys.argv[1:]
if "-r" in words and "--no-deps" not in words:
    assert "--require-hashes" in words
    lines = Path(words[words.index("-r") + 1]).read_text()
    pinned = re.findall(r"^([a-z][a-z0-9-]*)==(\\S+?)(?: ;.*)? \\\\$", lines, re.MULTILINE)
    assert len(pinned) > 5 and lines.count("--hash=sha256:") >= len(pinned)
    wrong = [name for name, version in pinned if name != "colorama" and metadata.version(name) != version]
    assert wrong == [], wrong
    (site,) = Path("@VENV@").glob("lib/python3*/site-packages")
    (site / "checkout.pth").write_text("{site}\\n")
else:
    command = [{python!r}, "-m", "pip", "--disable-pip-version-check", "--python", "@VENV@/bin/python"]
    # The checkout is installed too: without the option pip would accept it as the release.
    sys.exit(subprocess.run([*command, *words, "--ignore-installed"]).returncode)
"""


def said(command: list[str], *arguments: str) -> str:
    """Return the output of a command that runs outside of this checkout."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run([*command, *arguments], cwd="/", env=environment, capture_output=True, text=True, check=True)
    return ended.stdout


@pytest.fixture
def stand_ins(tmp_path: Path) -> str:
    """Return a directory with a `python` and a `pip` that download nothing."""
    directory = tmp_path / "bin"
    directory.mkdir()
    (site,) = {path for path in sys.path if path.endswith("site-packages") and path.startswith(sys.prefix)}
    for name, text in (
        ("python", _PYTHON.format(python=sys.executable)),
        ("venv-pip", _PIP.format(python=sys.executable, site=site)),
        ("pip", f'#!/bin/bash\nexec {sys.executable} -m pip --disable-pip-version-check "$@"\n'),
    ):
        (directory / name).write_text(text)
        (directory / name).chmod(0o755)
    return str(directory)


def test_the_image_of_the_agent_is_built_from_what_is_copied_and_starts(
    tmp_path: Path, release: Path, stand_ins: str
) -> None:
    """Only from the wheel and the locked requirements; no module is the checkout's."""
    build = Build(tmp_path, release, STAGES, stand_ins)
    program = build.entry_point("agent")
    assert program[1:] == ["run", "/conf"]
    assert re.fullmatch(r"ts-uploader \d+\.\d+\.\d+\n", said(program[:1], "--version"))
    assert "--server-properties" in said(program[:2], "--help")
    python = [str(tmp_path / "agent" / "opt" / "venv" / "bin" / "python")]
    place = said(python, "-c", "import ts_common.store.s3.driver, ts_uploader.agent as agent; print(agent.__file__)")
    assert place.startswith(str(tmp_path / "agent"))


@pytest.mark.full  # other stages of the same file
def test_the_image_of_the_endpoint_is_built_from_what_is_copied_and_starts(
    tmp_path: Path, release: Path, stand_ins: str
) -> None:
    """As that of the agent."""
    build = Build(tmp_path, release, STAGES, stand_ins)
    program = build.entry_point("endpoint")
    assert program[1:] == ["serve"]
    assert re.fullmatch(r"ts-endpoint \d+\.\d+\.\d+\n", said(program[:1], "--version"))
    assert "--advertise" in said(program, "--help")
    python = [str(tmp_path / "endpoint" / "opt" / "venv" / "bin" / "python")]
    place = said(python, "-c", "import ts_endpoint.serving.endpoint as endpoint; print(endpoint.__file__)")
    assert place.startswith(str(tmp_path / "endpoint"))


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "store", "login"),
    [
        ("agent", "gcs", "agent"),
        ("agent", "azure", "sasl"),
        ("tsctl", "agent", "agent"),
        ("endpoint", "endpoint", "agent"),
        ("endpoint", "gcs", "agent"),
    ],
)
def test_each_image_is_built_from_the_locked_requirements_alone(
    tmp_path: Path, release: Path, name: str, store: str, login: str
) -> None:
    """With a real pip and its downloads, isolated from this checkout's environment."""
    programs = tmp_path / "bin"
    programs.mkdir()
    base = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    for program, text in (("python", f'exec {base} "$@"'), ("pip", f'exec {tmp_path}/build/bin/pip "$@"')):
        (programs / program).write_text(f"#!/bin/bash\n{text}\n")
        (programs / program).chmod(0o755)
    subprocess.run([base, "-m", "venv", tmp_path / "build"], check=True)
    build = Build(tmp_path, release, STAGES, str(programs), {"STORE": store, "LOGIN": login})
    assert said(build.entry_point(name)[:1], "--version").strip()
    python = [str(tmp_path / name / "opt" / "venv" / "bin" / "python")]
    said(python, "-c", f"import {_WORKS[name]}")


def test_no_container_runs_as_root_and_no_build_tools_are_in_it() -> None:
    """The user is a number, so that Kubernetes can check it; nothing is installed after the build."""
    assert list(STAGES)[-1] == "agent"
    for name in ("agent", "tsctl", "endpoint"):
        assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", STAGES[name].last("USER"))
        assert [word for word, _ in STAGES[name].steps if word in {"RUN", "ADD"}] == []
        assert {rest.split()[0] for word, rest in STAGES[name].steps if word == "COPY"} == {f"--from=build-{name}"}
    assert {stage.base for stage in STAGES.values()} == {"${BASE}"}
    assert re.search(r"^ARG BASE=python:3\.11-\w+-\w+$", (CHECKOUT / "deploy" / "Dockerfile").read_text(), re.MULTILINE)
