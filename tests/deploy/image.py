"""Builds a Dockerfile's stages without Docker, each in its own directory, from its COPY lines.

Paths of the image are below a root of the stage. bash runs the RUN lines with these paths replaced. The base image's
content, a Python with pip, is on the PATH.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_PATHS = re.compile(r"(?<![\w/.])/(?=src\b|opt\b|wheels\b)")


@dataclass
class Stage:
    """One stage.

    Attributes:
        base: its base image or stage.
        steps: its other instructions in order: the word, and its arguments.
    """

    base: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def last(self, word: str) -> str:
        """Return the arguments of the last instruction of a kind."""
        return [rest for name, rest in self.steps if name == word][-1]


def stages_of(text: str) -> dict[str, Stage]:
    """Return a Dockerfile's stages by their names, in order."""
    without_comments = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
    found: dict[str, Stage] = {}
    current: Stage | None = None
    for line in without_comments.replace("\\\n", " ").splitlines():
        word, _, rest = line.strip().partition(" ")
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            current = found.setdefault(name, Stage(base))
        elif word and current is not None:
            current.steps.append((word, " ".join(rest.split())))
    return found


class Build:
    """Builds stages below a directory.

    Args:
        directory: contains the root of each stage.
        context: the source of COPY.
        stages: of the Dockerfile.
        path: directories before all others on the PATH of RUN lines.
        arguments: instead of the defaults of ARG.
    """

    def __init__(
        self,
        directory: Path,
        context: Path,
        stages: Mapping[str, Stage],
        path: str,
        arguments: Mapping[str, str] | None = None,
    ) -> None:
        self._directory = directory
        self._context = context
        self._stages = stages
        self._path = path
        self._arguments = dict(arguments or {})
        self._built: set[str] = set()

    def root(self, name: str) -> Path:
        """Return the root of a stage; build it, and the stages that it copies from, if needed."""
        root = self._directory / name
        if name in self._built:
            return root
        self._built.add(name)
        root.mkdir()
        place, variables = root, {}
        for word, rest in self._stages[name].steps:
            match word:
                case "WORKDIR":
                    place = root / rest.lstrip("/")
                    place.mkdir(parents=True, exist_ok=True)
                case "ARG":
                    key, _, default = rest.partition("=")
                    variables[key] = self._arguments.get(key, default)
                case "COPY":
                    self._copy(rest.split(), root, place)
                case "RUN":
                    self._run(rest, root, place, variables)
        return root

    def entry_point(self, name: str) -> list[str]:
        """Return the command of a container of the stage."""
        words: list[str] = json.loads(self._stages[name].last("ENTRYPOINT"))
        return [here(word, self.root(name)) for word in words]

    def _copy(self, words: list[str], root: Path, place: Path) -> None:
        source = self._context
        if words[0].startswith("--from="):
            source = self.root(words.pop(0).removeprefix("--from="))
        *names, target = words
        for taken in (found for name in names for found in sorted(source.glob(name.lstrip("/")))):
            into = root / target.lstrip("/") if target.startswith("/") else place / target
            if len(names) > 1 or target.endswith("/"):
                into /= taken.name
            into.parent.mkdir(parents=True, exist_ok=True)
            if taken.is_dir():
                shutil.copytree(taken, into, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(taken, into)
        # A virtual environment contains its own path.
        for script in root.glob("opt/venv/bin/*"):
            if source != self._context and script.is_file() and not script.is_symlink():
                script.write_text(script.read_text().replace(str(source), str(root)))

    def _run(self, line: str, root: Path, place: Path, variables: Mapping[str, str]) -> None:
        ended = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", here(line, root)],
            cwd=place,
            env={**os.environ, **variables, "PATH": f"{self._path}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert ended.returncode == 0, f"RUN {line}\n{ended.stdout[-2000:]}{ended.stderr[-4000:]}"


def here(text: str, root: Path) -> str:
    """Replace paths of the image by paths below a root."""
    return _PATHS.sub(shlex.quote(f"{root}/"), text)
