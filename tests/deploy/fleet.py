"""Hosts for deploy/fleet/rollout: directories, and an `ssh` that runs commands in them, on their own /opt and /etc.

The hosts' programs record what they would do to the system: `systemctl` records the release that "runs", and `curl`
answers for it. So the tests need no root and no network.
"""

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
ROLLOUT = CHECKOUT / "deploy" / "fleet" / "rollout"
WELL = "ts_uploader_leadership_connected 1.0\n"
# As with the real ssh, a shell on the host parses the words after the host.
_SSH = """\
#!/bin/bash
while [[ $1 == -* ]]; do shift 2; done
root={hosts}/$1; shift
if [[ -e $root/unreachable ]]; then echo "ssh: no route to it" >&2; exit 255; fi
echo "$*" >> "$root/asked"
export TEST_ROOT=$root PATH=$root/bin:$PATH
here() {{ sed -E "s#(^|[^A-Za-z0-9_./-])/(opt|etc)/#\\\\1$root/\\\\2/#g"; }}
command=$(here <<< "$*")
if [[ $command == *"bash -s"* ]]; then here | bash -c "$command"; else bash -c "$command"; fi
"""
_PROGRAMS = {
    "sudo": 'shift; exec "$@"',
    "runuser": '[[ "$1 $2 $3" == "-u ts-uploader --" ]] && shift 3 && exec "$@"',
    "useradd": 'echo "useradd $2 $3 ${@: -1}" >> "$TEST_ROOT/done"; touch "$TEST_ROOT/user"',
    "id": "[[ -e $TEST_ROOT/user ]]",
    "chgrp": '[[ $1 == "$(cat "$TEST_ROOT/group")" && -e $2 ]]',
    "stat": '[[ "$1 $2 $3" == "-L -c %G" && -d $4 ]] && cat "$TEST_ROOT/group"',
    "systemctl": 'echo "systemctl $*" >> "$TEST_ROOT/done"; '
    'if [[ $1 == restart ]]; then readlink "$TEST_ROOT/opt/ts-uploader/venv" > "$TEST_ROOT/running"; fi',
    "python3": '[[ "$1 $2" == "-m venv" ]] && mkdir -p "$3/bin" && cp "$TEST_ROOT/bin/venv-pip" "$3/bin/pip"',
    "venv-pip": 'echo "pip $*" >> "$TEST_ROOT/done"\n'
    "[[ -s requirements/agent.txt && -s requirements/ts-uploader.txt ]] || exit 1\n"
    '[[ "$*" != *--no-deps* ]] || cp "$TEST_ROOT/bin/release" "$(dirname "$0")/ts-uploader"',
    "release": 'echo "ts-uploader $*" >> "$TEST_ROOT/done"; env > "$TEST_ROOT/environment"\n'
    'exit "$(cat "$TEST_ROOT/check")"',
    "curl": 'running=$(cat "$TEST_ROOT/running" 2>/dev/null) && [[ ! -e $TEST_ROOT/bad-$running ]] || exit 22\n'
    'if [[ ${@: -1} == */metrics ]]; then cat "$TEST_ROOT/metrics"; fi',
}


class FleetHost:
    """One host.

    Attributes:
        root: its directory.
        opt: of the releases.
    """

    def __init__(self, root: Path, release: str | None) -> None:
        self.root = root
        self.opt = root / "opt" / "ts-uploader"
        self._etc = root / "etc" / "ts-uploader"
        (root / "bin").mkdir(parents=True)
        for directory in (self.opt, self._etc, root / "etc" / "systemd" / "system"):
            directory.mkdir(parents=True)
        for name, text in _PROGRAMS.items():
            script(root / "bin" / name, text)
        (root / "check").write_text("0")
        (root / "metrics").write_text(WELL)
        (root / "group").write_text("kafka\n")
        if release is not None:
            (self.opt / release).mkdir()
            (self.opt / "venv").symlink_to(release)
            (root / "running").write_text(f"{release}\n")
            (root / "user").touch()
            (root / "etc" / "systemd" / "system" / "ts-uploader.service").write_text("Group=kafka\n")
            (self._etc / "environment").write_text(
                "KAFKA_SERVER_PROPERTIES=/srv/kafka/server.properties\nAWS_PROFILE='kafka archive'\n"
                "TS_UPLOADER_ARGUMENTS=--http-address 0.0.0.0:9999 --cluster-id prod --log-level=debug\n"
            )
            (self._etc / "conf").mkdir()
            (self._etc / "conf" / "prod.properties").write_text("a=b\n")

    @property
    def release(self) -> str | None:
        """The release in use."""
        link = self.opt / "venv"
        return str(link.readlink()) if link.is_symlink() else None

    @property
    def done(self) -> list[str]:
        """The recorded actions, in order, with paths as on the host."""
        path = self.root / "done"
        return path.read_text().replace(str(self.root), "").splitlines() if path.exists() else []

    @property
    def was_asked(self) -> bool:
        return (self.root / "asked").exists()

    def files(self) -> set[str]:
        """All of its files, except the recorded actions."""
        return {str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.name != "asked"}


class Fleet:
    """Hosts by name, and a release to roll out: 0.2.0.

    Args:
        directory: of the test.
        hosts: with the release that runs there; None for a host without an agent.
    """

    def __init__(self, directory: Path, hosts: dict[str, str | None]) -> None:
        self.directory = directory
        self.hosts = {name: FleetHost(directory / "hosts" / name, release) for name, release in hosts.items()}
        (directory / "bin").mkdir()
        script(directory / "bin" / "ssh", _SSH.removeprefix("#!/bin/bash\n").format(hosts=directory / "hosts"))
        self.list = directory / "hosts.txt"
        self.list.write_text("# the first is the canary\n" + "".join(f"{name}  # broker\n\n" for name in hosts))
        self.release = directory / "release.tar.gz"
        unpacked = directory / "ts-uploader-0.2.0"
        for name in ("requirements/agent.txt", "requirements/ts-uploader.txt"):
            (unpacked / name).parent.mkdir(parents=True, exist_ok=True)
            (unpacked / name).write_text("x\n")
        shutil.copytree(CHECKOUT / "deploy", unpacked / "deploy")
        with tarfile.open(self.release, "w:gz") as archive:
            archive.add(unpacked, unpacked.name)

    def roll_out(self, *arguments: str, version: str = "0.2.0") -> subprocess.CompletedProcess[str]:
        """Run the rollout with short times, with a umask that closes new files to others."""
        command = [
            *(str(ROLLOUT), "--hosts", str(self.list), "--release", str(self.release), "--version", version),
            *("--steady", "1", "--timeout", "1"),
        ]
        path = f"{self.directory / 'bin'}:{os.environ['PATH']}"
        return subprocess.run(
            [*command, *arguments],
            cwd=self.directory,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
            umask=0o027,
        )


def script(path: Path, text: str) -> None:
    """Write a bash program."""
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)
