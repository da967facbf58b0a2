"""A broker's host for the commands of pages: its directories, its shell, and a stand-in for systemd.

Blocks of a page run in bash unchanged, except that `/opt` and `/etc` are directories of the test. `python3 -m venv`
makes a virtual environment whose `pip` installs this checkout as the release, unless the host installs for real.
`systemctl` calls this process, which starts the agent by the installed unit. No program changes its user:
`tests/uploader/log_dirs/test_guest.py` shows the rights that an agent needs.
"""

import os
import re
import shlex
import shutil
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from dev.dist import build
from dev.local.agent import AgentProcess
from dev.local.forks import write_command
from dev.local.prometheus import program
from tests.docs.commands import CHECKOUT, Block, CommandFailedError, Shell
from ts_uploader.cli import EXIT_REFUSED

_PYTHON = """\
#!/bin/bash
[[ "$1 $2" == "-m venv" ]] || exit 64
mkdir -p "$3/bin"
cp "$(dirname "$0")/pip" "$3/bin/pip"
"""
_PIP = """\
#!/bin/bash
case "$*" in
  "install --require-hashes -r requirements/"*.txt) test -s "$4" ;;
  "install --require-hashes --no-build-isolation -r requirements/"*.txt) test -s "$5" ;;
  "install --require-hashes --find-links . -r requirements/"*".txt -r requirements/ts-uploader.txt"\
    | "install --require-hashes --no-deps --no-index --find-links . -r requirements/ts-uploader.txt") \
    test -s requirements/ts-uploader.txt && cp "$TEST_PROGRAM" "$(dirname "$0")/ts-uploader" \
    && cp "$TEST_PROGRAM.tsctl" "$(dirname "$0")/tsctl" ;;
  *) exit 64 ;;
esac
"""
_PROGRAM = """\
#!/bin/bash
if [[ "$1" == run ]]; then PYTHONPATH={checkout} exec {program} "$@" {arguments}; fi
exec {forked} "$@"
"""
# Only where the machine has no curl.
_CURL = """\
#!/bin/bash
exec {python} -c 'import sys, urllib.request as r; print(r.urlopen(sys.argv[2]).read().decode())' "$@" 2>/dev/null
"""
_USERADD = """\
#!/bin/bash
[[ "${@: -1}" == ts-uploader ]]
"""
_SYSTEMD_RUN = """\
#!/bin/bash
while [[ "$1" == -* ]]; do
  case "$1" in
    --wait | --pipe | --collect | --quiet | --uid=ts-uploader | --gid=kafka) shift ;;
    -p) [[ "$2" == EnvironmentFile=* ]] || exit 64; set -a; . "${2#*=}"; set +a; shift 2 ;;
    *) exit 64 ;;
  esac
done
words=()
for word; do if [[ "$word" == '$'* ]]; then name="${word#?}"; words+=(${!name}); else words+=("$word"); fi; done
exec "${words[@]}"
"""
# The broker's group is not this machine's.
_INSTALL = """\
#!/bin/bash
words=()
while [[ $# -gt 0 ]]; do
  if [[ "$1" == -g ]]; then [[ "$2" == kafka ]] || exit 64; shift 2; else words+=("$1"); shift; fi
done
exec {install} "${{words[@]}}"
"""
_JOURNALCTL = """\
#!/bin/bash
[[ "$1 $2 $3" == "-u ts-uploader -n" ]] && exec tail -n "$4" "$TEST_LOG"
"""
_SYSTEMCTL = """\
#!/bin/bash
exec 9>"$TEST_LOCK"; flock 9
echo "$*" > "$TEST_REQUESTS"
read -r status < "$TEST_ANSWERS"
exit "$status"
"""


class _Unit(AgentProcess):
    """The agent as `deploy/ts-uploader.service` starts it."""

    def __init__(self, host: "Host", logs: Path, environment: Mapping[str, str], http_port: int | None) -> None:
        super().__init__(
            host.root, logs, host.etc / "conf", None, http_port=http_port, environment=environment, name=host.root.name
        )
        self._host = host

    def command(self) -> list[str]:
        """Return `ExecStart`, with the variables of the unit and of its environment file, which overrides it."""
        unit = (self._host.systemd / "ts-uploader.service").read_text().replace("\\\n", " ")
        said = {**dict(re.findall(r"^Environment=(\w+)=(.*)$", unit, re.MULTILINE)), **self._file()}
        (start,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
        for name, value in said.items():
            start = start.replace(f"${{{name}}}", value).replace(f"${name}", value)
        assert "$" not in start
        return shlex.split(self._host.shell.here(start))

    @property
    def refused(self) -> bool:
        """Return whether it ended with the exit code that stops the unit from restarting it."""
        return self._process is not None and self._process.poll() == EXIT_REFUSED

    def variables(self) -> Mapping[str, str]:
        """Return the constructor's variables and those of the environment file."""
        return {**super().variables(), **self._file()}

    def _file(self) -> dict[str, str]:
        lines = re.findall(r"^(\w+)=(.*)$", (self._host.etc / "environment").read_text(), re.MULTILINE)
        return {name: value.strip('"') for name, value in lines}


class Host:
    """One host; `run` executes blocks of a page.

    Args:
        root: a directory of the test.
        logs: directory of the agent's log.
        environment: of the agent: endpoint and credentials of S3.
        server_properties: the broker's own file.
        arguments: of releases that are installed here, for `ts-uploader run`.
        units: by name, what other units do on a command of systemctl.
        installed: whether release 0.1.0 is installed as by docs/deploy.md, with unit and environment file.
        for_real: whether an installation builds the wheel and downloads the locked packages.
        places: further names of the pages and their replacements.
    """

    def __init__(
        self,
        root: Path,
        logs: Path,
        environment: Mapping[str, str],
        server_properties: Path,
        arguments: tuple[str, ...] = (),
        units: Mapping[str, Callable[[str], object]] | None = None,
        *,
        installed: bool = True,
        for_real: bool = False,
        places: Mapping[str, str] | None = None,
    ) -> None:
        self.root = root
        self.etc = root / "etc" / "ts-uploader"
        self.opt = root / "opt" / "ts-uploader"
        self.systemd = root / "etc" / "systemd" / "system"
        self.asked: list[str] = []  # of systemctl
        self._bin, self._release = root / "bin", root / "release"
        for directory in (self._bin, self._release, self.systemd):
            directory.mkdir(parents=True)
        scripts = {"systemctl": _SYSTEMCTL, "journalctl": _JOURNALCTL, "useradd": _USERADD, "systemd-run": _SYSTEMD_RUN}
        scripts["install"] = _INSTALL.format(install=shutil.which("install"))
        if not for_real:
            scripts |= {"python3": _PYTHON, "pip": _PIP}
        if shutil.which("curl") is None:
            scripts["curl"] = _CURL.format(python=sys.executable)
        for name, text in scripts.items():
            _script(self._bin / name, text)
        write_command(root / "new.tsctl", "tsctl")
        write_command(root / "forked", "ts-uploader")
        _script(root / "new", _program(arguments, root / "forked"))
        self._unpack(root, whole=for_real)
        (self._bin / "promtool").symlink_to(program("promtool"))
        self.agent = _Unit(self, logs, environment, None)
        if installed:
            self._install(server_properties)
        self._units = {"ts-uploader": self._tell_agent, "daemon-reload": lambda _: None, **(units or {})}
        self._requests, self._answers = root / "requests", root / "answers"
        os.mkfifo(self._requests)
        os.mkfifo(self._answers)
        self._failed: Exception | None = None
        self._serving = threading.Thread(target=self._serve)
        self.shell = Shell(
            self._release,
            {
                "/opt/ts-uploader": str(self.opt),
                "/etc/ts-uploader": str(self.etc),
                "/etc/systemd/system": str(self.systemd),
                "/etc/kafka/server.properties": str(server_properties),
                "127.0.0.1:9464": self.agent.address,
                **(places or {}),
            },
            self._bin,
            {
                "TEST_PROGRAM": str(root / "new"),
                "TEST_LOCK": str(root / "lock"),
                "TEST_LOG": str(self.agent.log),
                "TEST_REQUESTS": str(self._requests),
                "TEST_ANSWERS": str(self._answers),
                **environment,
            },
        )

    def _unpack(self, root: Path, *, whole: bool) -> None:
        """Unpack the release: all of it, or the files that a stand-in of pip reads."""
        if whole:
            self._release.rmdir()
            build(root / "dist").rename(self._release)
            return
        for name in ("requirements", "conf", "deploy"):
            shutil.copytree(CHECKOUT / name, self._release / name)
        (self._release / "requirements/ts-uploader.txt").write_text("# a stand-in\n")

    def _install(self, server_properties: Path) -> None:
        for directory in (self.etc / "conf", self.opt / "0.1.0" / "bin"):
            directory.mkdir(parents=True)
        _script(self.opt / "0.1.0" / "bin" / "ts-uploader", _program((), self._bin.parent / "forked"))
        (self.opt / "venv").symlink_to("0.1.0")
        shutil.copy(self._release / "deploy" / "ts-uploader.service", self.systemd)
        (self.etc / "environment").write_text(
            f"KAFKA_SERVER_PROPERTIES={server_properties}\n"
            f'TS_UPLOADER_ARGUMENTS="--http-address {self.agent.address}"\n'
        )

    def run(self, *parts: Block | str, **variables: str) -> str:
        """Run blocks as `Shell.run` does; a failure also shows the end of the agent's log."""
        try:
            return self.shell.run(*parts, **variables)
        except CommandFailedError as error:
            error.add_note(self.agent.tail())
            raise

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
        """Execute the requests of systemctl one at a time, until the request `end`."""
        while (request := self._requests.read_text().strip()) != "end":
            if request == "is-failed -q ts-uploader":  # it changes nothing, and is repeated often
                self._answers.write_text("0\n" if self.agent.refused else "1\n")
                continue
            self.asked.append(request)
            words = [word for word in request.split() if word != "--now"]
            try:
                self._units[words[-1]](words[0])
                status = 0
            except Exception as error:  # noqa: BLE001  (reported to the shell, and raised at the end)
                self._failed, status = error, 1
            self._answers.write_text(f"{status}\n")

    def _tell_agent(self, word: str) -> None:
        if word in {"stop", "restart", "disable"}:
            self.agent.stop()
        if word in {"start", "restart", "enable"}:
            self.agent.launch()


def _program(arguments: tuple[str, ...], forked: Path) -> str:
    program = Path(sys.executable).with_name("ts-uploader")
    return _PROGRAM.format(arguments=shlex.join(arguments), checkout=CHECKOUT, program=program, forked=forked)


def _script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)
