"""deploy/ts-uploader.service, as systemd's own tools read it; `tests/uploader/process/test_sandbox.py` runs it."""

import re
from pathlib import Path

from tests.deploy.sandbox import allowed_calls, settings
from ts_local.systemd import analyze, problems_of

CHECKOUT = Path(__file__).parents[2]
UNIT = CHECKOUT / "deploy" / "ts-uploader.service"
_SCORE = re.compile(r"[Oo]verall exposure level[^:]*: ([0-9.]+)")


def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    """Every key and every value is valid, and a mistake would be reported."""
    assert problems_of(UNIT) == ""
    wrong = tmp_path / UNIT.name
    wrong.write_text(UNIT.read_text().replace("ProtectClock=", "ProtectClocks="))
    assert "ProtectClocks" in problems_of(wrong)


def test_the_unit_is_as_closed_as_the_page_says() -> None:
    """The score of `systemd-analyze security`, from 0 (closed) to 10, must not rise."""
    page = (CHECKOUT / "docs" / "deploy.md").read_text()
    (recorded,) = re.findall(r"`systemd-analyze security` gives it ([0-9.]+)", page)
    said = analyze("security", "--offline=yes", str(UNIT))
    scores = _SCORE.findall(said.stdout)
    assert scores == [recorded], said.stdout + said.stderr


def test_the_unit_allows_what_stepping_back_takes_and_nothing_that_needs_privileges() -> None:
    """The order of its lines matters: what a set removes is added again by name."""
    calls = allowed_calls(settings(UNIT)["SystemCallFilter"])
    assert {"setpriority", "ioprio_set", "inotify_add_watch", "openat", "connect"} <= calls
    assert calls.isdisjoint(
        {"chown", "mount", "setuid", "ptrace", "bpf", "sched_setscheduler", "reboot", "init_module"}
    )


def test_the_kernel_takes_the_agent_before_the_broker() -> None:
    """Out of memory, the kernel ends the agent first; the broker has priority on CPU and disks."""
    said = settings(UNIT)
    assert int(said["OOMScoreAdjust"][0]) > 0
    assert int(said["CPUWeight"][0]) < 100 > int(said["IOWeight"][0])


def test_u38_the_agent_starts_once_the_clock_is_set_and_only_a_refused_configuration_ends_it() -> None:
    """Stores reject requests signed with a wrong time; after other failures systemd always restarts the agent."""
    said = settings(UNIT)
    for relation in ("After", "Wants"):
        assert {"network-online.target", "time-sync.target"} <= set(" ".join(said[relation]).split())
    assert said["Restart"] == ["always"]
    assert said["RestartPreventExitStatus"] == ["2"]
