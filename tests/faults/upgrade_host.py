"""A broker's host as docs/upgrade.md sees it: its directories, its shell, and systemd's word for what runs there.

Blocks of the page run in bash as they stand, but that `/opt` and `/etc` are directories of the test. `python3 -m venv`
makes a virtual environment whose `pip install .` installs this checkout; `systemctl` asks this process, which starts
the agent by the unit under deploy/.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from ts_local.agent import AgentProcess

CHECKOUT = Path(__file__).parents[2]
_FENCED = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_SECONDS = 240

_PYTHON = """\
#!/bin/bash
[[ "$1 $2" == "-m venv" ]] || exit 64
mkdir -p "$3/bin"
cp "$(dirname "$0")/pip" "$3/bin/pip"
"""
_PIP = """\
#!/bin/bash
case "$*" in
  "install --require-hashes -r requirements/agent.txt") test -s requirements/agent.txt ;;
  "install --no-deps .") test -e pyproject.toml && cp "$TEST_PROGRAM" "$(dirname "$0")/ts-uploader" ;;
  *) exit 64 ;;
esac
"""
_PROGRAM = """\
#!/bin/bash
if [[ "$1" == run ]]; then set -- "$@" {arguments}; fi
PYTHONPATH={checkout} exec {program} "$@"
"""
# Only where the machine has no curl.
_CURL = """\
#!/bin/bash
exec {python} -c 'import sys, urllib.request as r; print(r.urlopen(sys.argv[2]).read().decode())' "$@" 2>/dev/null
"""
_SYSTEMCTL = """\
#!/bin/bash
exec 9>"$TEST_LOCK"; flock 9
echo "$*" > "$TEST_REQUESTS"
read -r status < "$TEST_ANSWERS"
exit "$status"
"""


def sections(page: str) -> dict[str, list[str]]:
    """The shell blocks of a page in their order, by the heading above; under an empty one those before the first."""
    parts = re.split(r"^## (.*)$", page, flags=re.MULTILINE)
    named = {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}
    return {name: _FENCED.findall(text) for name, text in named.items()}


class _Unit(AgentProcess):
    """The agent as `deploy/ts-uploader.service` starts it."""

    def __init__(self, host: "Host", logs: Path, environment: Mapping[str, str], http_port: int | None) -> None:
        super().__init__(
            host.root, logs, host.etc / "conf", None, http_port=http_port, environment=environment, name=host.root.name
        )
        self._host = host

    def command(self) -> list[str]:
        """`ExecStart`, with the variables of the unit and of its environment file; the last word counts."""
        unit = (CHECKOUT / "deploy" / "ts-uploader.service").read_text().replace("\\\n", " ")
        said = re.findall(r"^Environment=(\w+)=(.*)$", unit, re.MULTILINE)
        said += re.findall(r"^(\w+)=(.*)$", (self._host.etc / "environment").read_text(), re.MULTILINE)
        (start,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
        for name, value in dict(said).items():
            start = start.replace(f"${{{name}}}", value).replace(f"${name}", value)
        assert "$" not in start
        return shlex.split(self._host.here(start))


class Host:
    """One host; `run` executes a block of the page.

    Args:
        root: a directory of the test.
        logs: directory of the agent's log.
        environment: of the agent: endpoint and credentials of S3.
        server_properties: the broker's own file.
        arguments: of releases that are installed here, for `ts-uploader run`.
        units: by name, what other units do where they are told a word of systemctl's.
    """

    def __init__(
        self,
        root: Path,
        logs: Path,
        environment: Mapping[str, str],
        server_properties: Path,
        arguments: tuple[str, ...] = (),
        units: Mapping[str, Callable[[str], object]] | None = None,
    ) -> None:
        self.root = root
        self.etc = root / "etc" / "ts-uploader"
        self.opt = root / "opt" / "ts-uploader"
        self.asked: list[str] = []  # of systemctl
        self._bin, self._release = root / "bin", root / "release"
        for directory in (self.etc / "conf", self.opt / "0.1.0" / "bin", self._bin, self._release / "build" / "lib"):
            directory.mkdir(parents=True)
        scripts = {"python3": _PYTHON, "pip": _PIP, "systemctl": _SYSTEMCTL}
        if shutil.which("curl") is None:
            scripts["curl"] = _CURL.format(python=sys.executable)
        for name, text in scripts.items():
            _script(self._bin / name, text)
        _script(root / "new", _program(arguments))
        _script(self.opt / "0.1.0" / "bin" / "ts-uploader", _program(()))
        (self.opt / "venv").symlink_to("0.1.0")
        shutil.copytree(CHECKOUT / "requirements", self._release / "requirements")
        shutil.copy(CHECKOUT / "pyproject.toml", self._release)
        self.agent = _Unit(self, logs, environment, None)
        (self.etc / "environment").write_text(
            f"KAFKA_SERVER_PROPERTIES={server_properties}\nTS_UPLOADER_ARGUMENTS=--http-address {self.agent.address}\n"
        )
        self._units = {"ts-uploader": self._tell_agent, **(units or {})}
        self._requests, self._answers = root / "requests", root / "answers"
        os.mkfifo(self._requests)
        os.mkfifo(self._answers)
        self._failed: Exception | None = None
        self._serving = threading.Thread(target=self._serve)

    def here(self, text: str) -> str:
        """Text of the page or the unit, with this host's paths."""
        return re.sub(r"(?<![\w/])/(opt|etc)/ts-uploader", rf"{self.root}/\1/ts-uploader", text)

    def variables(self) -> dict[str, str]:
        """The environment of whatever runs here."""
        return {
            **os.environ,
            "PATH": f"{self._bin}:{os.environ['PATH']}",
            "TEST_PROGRAM": str(self.root / "new"),
            "TEST_LOCK": str(self.root / "lock"),
            "TEST_REQUESTS": str(self._requests),
            "TEST_ANSWERS": str(self._answers),
            "no_proxy": "127.0.0.1",
        }

    def run(self, *blocks: str, **variables: str) -> str:
        """Run blocks of the page in one shell, and give what they print.

        Args:
            blocks: as they stand there.
            variables: take the place of those that the blocks export, which is where a reader sets them.
        """
        script = self.here("\n".join(blocks))
        for name, value in variables.items():
            script, count = re.subn(
                rf"^export {name}=\S+", f"export {name}={shlex.quote(value)}", script, flags=re.MULTILINE
            )
            assert count == 1, f"the page sets no {name}"
        ended = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self._release,
            env=self.variables(),
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        assert ended.returncode == 0, f"{script}\n{ended.stdout}{ended.stderr}\n{self.agent.tail()}"
        return ended.stdout

    def __enter__(self) -> Self:
        self._serving.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._requests.write_text("end\n")
        self._serving.join()
        self.agent.kill()
        if self._failed is not None and error is None:
            raise self._failed

    def _serve(self) -> None:
        """Do what systemctl is told, one request at a time, until told to end."""
        while (request := self._requests.read_text().strip()) != "end":
            self.asked.append(request)
            words = [word for word in request.split() if word != "--now"]
            try:
                self._units[words[-1]](words[0])
                status = 0
            except Exception as error:  # noqa: BLE001  (the shell is told, and whoever waits for the end)
                self._failed, status = error, 1
            self._answers.write_text(f"{status}\n")

    def _tell_agent(self, word: str) -> None:
        if word in {"stop", "restart", "disable"}:
            self.agent.stop()
        if word in {"start", "restart", "enable"}:
            self.agent.launch()


def _program(arguments: tuple[str, ...]) -> str:
    program = Path(sys.executable).with_name("ts-uploader")
    return _PROGRAM.format(arguments=shlex.join(arguments), checkout=CHECKOUT, program=program)


def _script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)
