"""What `make fresh` copies from this machine, and its errors where it cannot run; it is too slow for a test itself."""

import subprocess
import sys

import pytest

from dev import fresh
from dev.local.apt import ToolMissingError
from dev.local.jars import BUILD


def test_a_root_gets_only_what_clients_of_registries_read() -> None:
    """Other variables of this machine would hide faults."""
    registries = {"https_proxy": "http://p:1", "PIP_INDEX_URL": "x", "NODE_EXTRA_CA_CERTS": "/c", "GOPROXY": "y"}
    found = fresh.environment({**registries, "PYTHONUNBUFFERED": "1", "PIP_FIND_LINKS": "/w", "JAVA_HOME": "/j"})
    assert {**found, **registries} == found
    assert {*found} - {*registries} == {"PATH", "HOME", "LANG", "TERM"}


def test_without_root_or_debian_the_error_names_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is made then."""
    program = "import os, sys; os.geteuid = lambda: 1; from dev.fresh import main; sys.exit(main())"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=BUILD.parent, check=False)
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr == "make fresh needs root: debootstrap and chroot do. Run it as root, on Debian\n"
    monkeypatch.setattr(subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 0, "", ""))
    with pytest.raises(ToolMissingError, match="no mirror of Debian"):
        fresh.mirror()
