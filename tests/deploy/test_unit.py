"""The units of the agent and the endpoint, by systemd's own tools.

`tests/uploader/process/test_sandbox.py` and `tests/endpoint/test_sandbox.py` run their commands.
"""

import re
import shlex
from pathlib import Path

import pytest

from dev.local.systemd import analyze, problems_of
from tests.deploy.endpoint_options import settings_of
from tests.deploy.sandbox import allowed_calls, settings
from ts_endpoint.peers.cluster import CHECK_SECONDS, DEADLINE_SECONDS
from ts_endpoint.serving.endpoint import GRACE_SECONDS

CHECKOUT = Path(__file__).parents[2]
UNIT = CHECKOUT / "deploy" / "ts-uploader.service"
ENDPOINT = CHECKOUT / "deploy" / "ts-endpoint.service"
_SCORE = re.compile(r"[Oo]verall exposure level[^:]*: ([0-9.]+)")


@pytest.mark.parametrize("unit", [UNIT, ENDPOINT], ids=lambda unit: unit.name)
def test_systemd_accepts_the_unit(tmp_path: Path, unit: Path) -> None:
    """Every key and every value; a mistake is reported."""
    assert problems_of(unit) == ""
    wrong = tmp_path / unit.name
    wrong.write_text(unit.read_text().replace("ProtectClock=", "ProtectClocks="))
    assert "ProtectClocks" in problems_of(wrong)


@pytest.mark.parametrize(
    ("unit", "name"), [(UNIT, "deploy.md"), (ENDPOINT, "running-the-endpoint.md")], ids=["agent", "endpoint"]
)
def test_the_unit_has_the_security_score_of_the_page(unit: Path, name: str) -> None:
    """The score of `systemd-analyze security`, from 0 (closed) to 10, is the page's."""
    page = (CHECKOUT / "docs" / name).read_text()
    (recorded,) = re.findall(r"`systemd-analyze security` gives it ([0-9.]+)", page)
    said = analyze("security", "--offline=yes", str(unit))
    scores = _SCORE.findall(said.stdout)
    assert scores == [recorded], said.stdout + said.stderr


def test_the_unit_allows_what_stepping_back_needs_and_nothing_that_needs_privileges() -> None:
    """The order of its lines counts: a set removes calls, and names add some again."""
    calls = allowed_calls(settings(UNIT)["SystemCallFilter"])
    assert {"setpriority", "ioprio_set", "inotify_add_watch", "openat", "connect"} <= calls
    assert calls.isdisjoint(
        {"chown", "mount", "setuid", "ptrace", "bpf", "sched_setscheduler", "reboot", "init_module"}
    )


def test_the_kernel_kills_the_agent_before_the_broker() -> None:
    """If memory runs out; the broker also has priority on the CPU and the disks."""
    said = settings(UNIT)
    assert int(said["OOMScoreAdjust"][0]) > 0
    assert int(said["CPUWeight"][0]) < 100 > int(said["IOWeight"][0])


@pytest.mark.parametrize("unit", [UNIT, ENDPOINT], ids=["agent", "endpoint"])
def test_u38_a_process_starts_once_the_clock_is_set_and_only_a_rejected_configuration_ends_it(unit: Path) -> None:
    """Stores reject requests that are signed at another time; after other failures systemd restarts the process."""
    said = settings(unit)
    for relation in ("After", "Wants"):
        assert {"network-online.target", "time-sync.target"} <= set(" ".join(said[relation]).split())
    assert said["Restart"] == ["always"]
    assert said["RestartPreventExitStatus"] == ["2"]


def test_the_example_of_the_endpoints_environment_has_options_that_exist_and_fit_together(tmp_path: Path) -> None:
    """The command is the unit's; the limit of files and the time to stop suit the defaults."""
    said = settings(ENDPOINT)
    ((program, command, *fixed, variable),) = (shlex.split(line) for line in said["ExecStart"])
    assert (Path(program).name, command, variable) == ("ts-endpoint", "serve", "$TS_ENDPOINT_ARGUMENTS")
    text = (CHECKOUT / "deploy" / "endpoint.environment.example").read_text()
    ((_, value),) = re.findall(r"^(TS_ENDPOINT_ARGUMENTS)=(.*)$", text, re.MULTILINE)
    (arguments,) = shlex.split(value)
    settled = settings_of([*fixed, *shlex.split(arguments)], tmp_path)
    assert settled.limits.connections < int(said["LimitNOFILE"][0])
    assert not settled.is_open
    assert int(said["TimeoutStopSec"][0]) > GRACE_SECONDS + CHECK_SECONDS + DEADLINE_SECONDS
    assert allowed_calls(said["SystemCallFilter"]).isdisjoint({"chown", "mount", "setuid", "ptrace", "bpf", "reboot"})


def test_the_memory_of_an_endpoint_is_above_the_sum_of_the_page(tmp_path: Path) -> None:
    """The parts are the defaults of the options; unit and pod have the same limit, and their comments the same sum."""
    page = (CHECKOUT / "docs" / "running-the-endpoint.md").read_text().partition("\n## Memory of a process\n")[2]
    parts = {name: int(number) for name, number in re.findall(r"^\| (.+) \| (\d+) \|$", page, re.MULTILINE)}
    total = parts.pop("together")
    assert sum(parts.values()) == total
    options = settings_of(["--config", "/conf/prod.properties"], tmp_path).options
    assert (parts["`--cache-mib`"], parts["`--in-flight-mib`"]) == (options.cache_mib, options.in_flight_mib)
    pod = (CHECKOUT / "deploy" / "kubernetes" / "endpoint.yaml").read_text()
    assert settings(ENDPOINT)["MemoryMax"] == ["2G"]
    assert re.findall(r"memory: (\S+)", pod) == ["2Gi", "2Gi"]
    assert total < 2048
    for text in (ENDPOINT.read_text(), pod):
        assert f": {total}." in text.replace("\n", " ")
