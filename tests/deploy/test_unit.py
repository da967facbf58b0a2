"""deploy/ts-uploader.service, as systemd's own tools read it; `tests/uploader/process/test_sandbox.py` runs it."""

import re
from pathlib import Path

from tests.deploy.sandbox import allowed_calls, settings
from ts_local.systemd import analyze, problems_of

CHECKOUT = Path(__file__).parents[2]
UNIT = CHECKOUT / "deploy" / "ts-uploader.service"
_SCORE = re.compile(r"[Oo]verall exposure level[^:]*: ([0-9.]+)")


def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    """Every key is known and every value understood, and a mistake would be told."""
    assert problems_of(UNIT) == ""
    wrong = tmp_path / UNIT.name
    wrong.write_text(UNIT.read_text().replace("ProtectClock=", "ProtectClocks="))
    assert "ProtectClocks" in problems_of(wrong)


def test_the_unit_is_as_closed_as_the_page_says() -> None:
    """By the score of `systemd-analyze security`, from 0 (closed) to 10; it must not get worse unseen."""
    page = (CHECKOUT / "docs" / "deploy.md").read_text()
    (recorded,) = re.findall(r"`systemd-analyze security` gives it ([0-9.]+)", page)
    said = analyze("security", "--offline=yes", str(UNIT))
    scores = _SCORE.findall(said.stdout)
    assert scores == [recorded], said.stdout + said.stderr


def test_the_unit_allows_what_stepping_back_takes_and_nothing_that_needs_privileges() -> None:
    """The order of its lines counts: what is taken away with a set is given back by name."""
    calls = allowed_calls(settings(UNIT)["SystemCallFilter"])
    assert {"setpriority", "ioprio_set", "inotify_add_watch", "openat", "connect"} <= calls
    assert calls.isdisjoint(
        {"chown", "mount", "setuid", "ptrace", "bpf", "sched_setscheduler", "reboot", "init_module"}
    )


def test_the_kernel_takes_the_agent_before_the_broker() -> None:
    """Where memory runs out; and the broker goes first on the CPU and the disks."""
    said = settings(UNIT)
    assert int(said["OOMScoreAdjust"][0]) > 0
    assert int(said["CPUWeight"][0]) < 100 > int(said["IOWeight"][0])


def test_u38_the_agent_starts_once_the_clock_is_set_and_only_a_refused_configuration_ends_it() -> None:
    """Stores refuse requests that are signed at another time; what passes by itself is tried again for ever."""
    said = settings(UNIT)
    for relation in ("After", "Wants"):
        assert {"network-online.target", "time-sync.target"} <= set(" ".join(said[relation]).split())
    assert said["Restart"] == ["always"]
    assert said["RestartPreventExitStatus"] == ["2"]
