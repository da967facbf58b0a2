"""The commands in an environment that lacks their packages."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("tsctl.start", "typer", "tsctl"),
        ("ts_uploader.start", "kazoo", "agent"),
        ("ts_endpoint.start", "kio", "endpoint"),
    ],
)
def test_a_command_without_its_packages_names_them(tmp_path: Path, module: str, package: str, extra: str) -> None:
    """One line with the way out, and exit code 2; the wheel of a reader has all commands."""
    (tmp_path / f"{package}.py").write_text(f"raise ModuleNotFoundError('no', name='{package}')")
    ended = subprocess.run(
        [sys.executable, "-c", f"from {module} import main; main()"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path.cwd())])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert f"the package {package} is not installed" in line
    assert f"requirements/{extra}.txt" in line


@pytest.mark.parametrize(
    ("module", "imported"), [("tsctl.start", "tsctl.cli"), ("tsctl.cli", "tsctl.commands.ls")], ids=str
)
def test_an_interrupt_during_the_imports_is_no_traceback(module: str, imported: str) -> None:
    """The imports need a second, so Ctrl-C often arrives during them."""
    program = f"""
import sys
class Interrupted:
    def find_spec(self, name, *_):
        if name == "{imported}":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted())
sys.argv = ["tsctl", "ls"]
from {module} import main
main()
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, "")


def test_a_missing_module_of_the_project_is_a_defect(tmp_path: Path) -> None:
    """It is no matter of an extra, so the traceback stays."""
    ended = subprocess.run(
        [
            sys.executable,
            "-c",
            "from ts_common.installed import start; start('tsctl', lambda: __import__('ts_common.no_such'), 'tsctl')",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert "ModuleNotFoundError" in ended.stderr
