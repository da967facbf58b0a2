"""Runs `tsctl` in this process, and as the installed command."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tsctl.cli import run as run_tsctl

PROGRAM = str(Path(sys.executable).with_name("tsctl"))


@dataclass(frozen=True)
class Ended:
    """The exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The command's JSON document."""
        found: dict[str, Any] = json.loads(self.out)
        return found

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The JSON documents, one on each line."""
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Ended]


def runner(capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command line in this process."""

    def ended(*arguments: object) -> Ended:
        capfd.readouterr()
        code = run_tsctl([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        assert "Traceback" not in err, err
        return Ended(int(code), out, err)

    return ended
