"""`make fresh`: the README's two commands on new machines, which are roots of Debian 12, 13 and testing.

    python -m dev.fresh                        all of them
    python -m dev.fresh trixie --only demo     one of them, and one command

Each root is made by debootstrap below `build/fresh`, with Git, make and Python, and has a clone of HEAD. It gets from
this machine only what clients of registries need: the mirror and the proxy of apt, certificates, and the settings of
pip, npm and Maven. The commands run in namespaces of their own, so that no mount and no process outlives them. The
host's name has no address there. Logs stay in `build/fresh`, roots are deleted.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from dev.local.apt import ToolMissingError, install
from dev.local.jars import BUILD

# Each suite's commands. Debian 12 has the Python of CI, which runs the tests.
SUITES: Final[Mapping[str, Sequence[str]]] = {
    "bookworm": ("demo",),
    "trixie": ("demo", "test"),
    "testing": ("demo", "test"),
}
# Tests that a root cannot run, with the reason.
NOT_IN_A_ROOT: Final[Mapping[str, str]] = {}
_EXPIRES: Final = "testing"  # a mirror's copy of its lists can be older than they are valid
_PACKAGES: Final = "ca-certificates,git,make,python3,python3-venv"
_FRESH: Final = BUILD / "fresh"
_COMMANDS: Final = {"demo": "DEMO_RECORDS=50000 make demo", "test": "make test"}
_SETTINGS: Final = ("/etc/pip.conf", "/etc/npmrc", "~/.npmrc", "~/.config/pip/pip.conf", "~/.m2/settings.xml")
_CERTIFICATES: Final = Path("/usr/local/share/ca-certificates")
_REGISTRIES: Final = re.compile(
    r"(https?|no|all)_proxy|NODE_EXTRA_CA_CERTS|PIP_(?!FIND_LINKS)\w+|npm_config_\w+|GO(PROXY|SUMDB|NOSUMDB|PRIVATE)",
    re.IGNORECASE,
)
# The first process of the root; its end ends all others and removes the mounts. `/` is a mount there, as tests of the
# unit's sandbox need it.
_START: Final = """\
cd "$0" && mount --bind . . && cd "$0" && mount --rbind /dev dev && mount -t proc proc proc &&
mount -t sysfs sysfs sys && exec chroot . "$@"
"""


class FreshFailedError(RuntimeError):
    """A command failed in a root. The message names its log."""


def environment(outside: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of commands in a root: those of a login, and what clients of registries read.

    Args:
        outside: the variables of this machine.
    """
    own = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8", "TERM": "dumb"}
    return {name: value for name, value in outside.items() if _REGISTRIES.fullmatch(name)} | own


class Root:
    """A Debian in a directory.

    Args:
        suite: Debian's name of the release.
    """

    def __init__(self, suite: str) -> None:
        self.suite = suite
        self.directory = _FRESH / suite
        self.log = _FRESH / f"{suite}.log"
        self._environment = environment(os.environ)

    def make(self) -> None:
        """Make the root and the clone.

        Raises:
            FreshFailedError: debootstrap, apt or Git failed.
        """
        self.remove()
        _FRESH.mkdir(parents=True, exist_ok=True)
        self.log.write_bytes(b"")
        made = ["debootstrap", "--variant=minbase", f"--include={_PACKAGES}", self.suite, str(self.directory), mirror()]
        self._call(made)
        self._configure()
        self.run("update-ca-certificates && apt-get update")
        self._call(["git", "clone", "-q", "--no-hardlinks", str(BUILD.parent), str(self.directory / "src")])

    def run(self, command: str) -> None:
        """Run a line of a shell in the root.

        Raises:
            FreshFailedError: it failed.
        """
        variables = [f"{name}={value}" for name, value in self._environment.items()]
        apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--", "bash", "-c", _START]
        self._call([*apart, str(self.directory), "env", "-i", *variables, "bash", "-c", f"cd / && {command}"])

    def remove(self) -> None:
        """Delete the root; nothing is mounted there any more."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def _configure(self) -> None:
        (self.directory / "etc" / "hosts").write_text("127.0.0.1 localhost\n")
        shutil.copy("/etc/resolv.conf", self.directory / "etc")
        settings = subprocess.run(["apt-config", "dump", "Acquire"], capture_output=True, text=True, check=True).stdout
        lines = re.findall(r"^Acquire::https?::.*Proxy.*$", settings, re.MULTILINE)
        if self.suite == _EXPIRES:
            lines.append('Acquire::Check-Valid-Until "false";')
        (self.directory / "etc" / "apt" / "apt.conf.d" / "90machine").write_text("".join(f"{line}\n" for line in lines))
        files = [Path(name).expanduser() for name in _SETTINGS]
        files += [path for value in self._environment.values() if (path := Path(value)).is_absolute()]
        for file in [*files, *_CERTIFICATES.glob("**/*.crt")]:
            inside = self.directory / file.relative_to("/")
            if file.is_file():
                inside.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, inside)

    def _call(self, command: Sequence[str]) -> None:
        with self.log.open("ab") as log:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False)
        if done.returncode:
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-30:])
            raise FreshFailedError(f"{self.suite}: {command[-1]}: exit status {done.returncode}\n{tail}\n{self.log}")


def mirror() -> str:
    """Return the URL of the mirror of Debian that apt uses on this machine.

    Raises:
        ToolMissingError: apt has none.
    """
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Label: Debian"]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    if not found:
        raise ToolMissingError("apt has no mirror of Debian: run `make fresh` on Debian, after `apt-get update`")
    return found[0]


def try_out(root: Root, commands: Sequence[str]) -> str:
    """Make a root and run the commands; return a line with their times.

    Raises:
        FreshFailedError: one failed.
    """
    times = []
    left_out = " ".join(f"--deselect={name}" for name in NOT_IN_A_ROOT)
    began = time.monotonic()
    root.make()
    times.append(f"made in {time.monotonic() - began:.0f} s")
    for name in commands:
        began = time.monotonic()
        root.run(f"cd /src && PYTEST_ADDOPTS='{left_out}' {_COMMANDS[name]}")
        times.append(f"make {name} {time.monotonic() - began:.0f} s")
    return f"{root.suite}: {', '.join(times)}"


def main() -> int:
    """Try the suites, print their times, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m dev.fresh")
    parser.add_argument("suites", nargs="*", choices=[*SUITES, []], help="default: all")
    parser.add_argument("--only", choices=_COMMANDS, help="one command")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # `finally` and `run` end the root
    try:
        if os.geteuid() != 0:
            raise ToolMissingError("make fresh needs root: debootstrap and chroot do. Run it as root, on Debian")
        if shutil.which("debootstrap") is None:
            install(["debootstrap"], "make fresh needs debootstrap")
        for suite in given.suites or SUITES:
            root = Root(suite)
            commands = [given.only] if given.only else SUITES[suite]
            print(f"{suite}: {', '.join(commands)}; log: {root.log}", flush=True)
            try:
                print(try_out(root, commands), flush=True)
            finally:
                root.remove()
    except (FreshFailedError, ToolMissingError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
