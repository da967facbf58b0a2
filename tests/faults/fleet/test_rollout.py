"""deploy/fleet/rollout with a real agent: checked, replaced under load, and verified, over a replacement for ssh."""

import subprocess
import tarfile
from pathlib import Path

import pytest

from dev.local.agent import write_config
from dev.local.kafka.cluster import LocalCluster
from tests.deploy.fleet import ROLLOUT, script
from tests.docs.commands import CHECKOUT
from tests.faults.conftest import ArchiveOf
from tests.faults.fleet.hosts import host_beside, wait_release
from tests.faults.leaders import PATIENCE, Load, assert_shown

pytestmark = pytest.mark.usefixtures("mended")

_SSH = """\
while [[ $1 == -* ]]; do shift 2; done
shift
here() {{ sed -E "s#(^|[^A-Za-z0-9_./-])/(opt|etc)/#\\\\1{root}/\\\\2/#g"; }}
command=$(here <<< "$*")
if [[ $command == *"bash -s"* ]]; then here | bash -c "$command"; else bash -c "$command"; fi
"""
# Not this machine's users and groups.
_STAND_INS = {"sudo": 'shift; exec "$@"', "runuser": 'shift 3; exec "$@"', "id": "exit 0", "chgrp": "exit 0"}


@pytest.mark.full
def test_a_rollout_replaces_an_agent_under_load(cluster: LocalCluster, archive_of: ArchiveOf, tmp_path: Path) -> None:
    """Its own check passes on the host, it is ready and steady afterwards, and a second run does nothing."""
    topic = "rolled-out"
    archive = archive_of(topic, cluster_id=cluster.cluster_id)
    cluster.create_topic(topic, assignment=[[1]])
    host_list, release = tmp_path / "hosts", tmp_path / "release.tar.gz"
    host_list.write_text("broker-1\n")
    with tarfile.open(release, "w:gz") as file:
        for name in ("requirements", "deploy"):
            file.add(CHECKOUT / name, f"ts-uploader/{name}")
        file.add(host_list, "ts-uploader/requirements/ts-uploader.txt")  # replaced, as pip is
    with Load(cluster, topic, 1) as load, host_beside(archive, tmp_path) as host:
        for name, text in {"ssh": _SSH.format(root=host.root), **_STAND_INS}.items():
            script(host.root / "bin" / name, text)
        write_config(host.etc / "conf", cluster.cluster_id, archive.properties)
        host.agent.start()
        wait_release(archive, later=False)

        def roll_out() -> str:
            ended = subprocess.run(
                [
                    *(str(ROLLOUT), "--hosts", str(host_list), "--release", str(release), "--version", "0.2.0"),
                    *("--steady", "3", "--timeout", str(int(PATIENCE))),
                ],
                cwd=tmp_path,
                env={**host.shell.environment, **archive.s3.environment()},
                capture_output=True,
                text=True,
                timeout=2 * PATIENCE,
                check=False,
            )
            logs = "".join(path.read_text() for path in tmp_path.glob("rollout-*/*.log"))
            assert ended.returncode == 0, ended.stdout + ended.stderr + logs
            return ended.stdout

        assert "done: 0.2.0 instead of 0.1.0" in roll_out()
        wait_release(archive, later=True)
        assert host.asked == ["restart ts-uploader"]
        assert "0.2.0 runs already, and is healthy" in roll_out()
        assert len(host.asked) == 1
        archive.wait_for_offset(archive.next_offset() + 1, seconds=PATIENCE)
    assert_shown(archive, load.acknowledged[0], archive.next_offset())
