"""The JDK of the local servers and of Spark, and what the demo and the tests remove from their environment."""

import os
import socket
from pathlib import Path

import pytest

from dev.local import apt, jdk
from dev.local.apt import ToolMissingError
from dev.local.environment import isolate


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Install":
    """Return what installs a Java on a machine that has no other one."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(jdk, "_INSTALLED", tmp_path / "jvm")
    return Install(tmp_path)


class Install:
    """Directories of a machine. A Java is a file with its version, and empty programs."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __call__(self, version: str, where: str, programs: tuple[str, ...] = jdk.PROGRAMS) -> Path:
        home = self.directory / where
        (home / "bin").mkdir(parents=True)
        (home / "release").write_text(f'IMPLEMENTOR="Debian"\nJAVA_VERSION="{version}"\n')
        for name in programs:
            (home / "bin" / name).touch(mode=0o755)
        return home


def test_the_newest_accepted_java_is_found_wherever_it_is(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    """In JAVA_HOME, on the PATH, below /usr/lib/jvm; a newer one, a JRE and what is no Java are passed over."""
    (install.directory / "jvm" / "openjdk-17").mkdir(parents=True)
    old = install("17.0.15", "jvm/java-17-openjdk")
    assert jdk.home() == old
    install("21.0.13", "jvm/java-21-jre", ("java",))
    new = install("21.0.13", "jvm/java-21-openjdk")
    install("25.0.1", "jvm/temurin-25")
    jdk._chosen.cache_clear()
    assert jdk.home() == new
    on_path = install("17.0.2", "path")
    (install.directory / "bin").mkdir()
    (install.directory / "bin" / "java").symlink_to(on_path / "bin" / "java")
    jdk._chosen.cache_clear()
    assert jdk.home() == on_path
    monkeypatch.setenv("JAVA_HOME", str(install("21", "named")))
    assert jdk.variables() == {"JAVA_HOME": os.environ["JAVA_HOME"]}
    monkeypatch.setenv("JAVA_HOME", str(install("25", "too-new")))
    assert jdk.program("javac") == f"{on_path}/bin/javac"


def test_without_an_accepted_java_the_error_names_the_versions_and_the_command(install: Install) -> None:
    """It names what was found instead."""
    with pytest.raises(ToolMissingError, match=r"Java 21 or 17.*; found: no Java. .*apt-get install openjdk-21-jdk"):
        jdk.home()
    install("25.0.1", "jvm/temurin-25")
    install("17.0.15", "jvm/jre", ("java",))
    with pytest.raises(ToolMissingError, match=r"found: Java 25 in .*; Java 17 in .*, without javac and jar"):
        jdk.home()


@pytest.mark.parametrize(
    ("offered", "installed"),
    [
        ({"openjdk-17-jdk-headless"}, "openjdk-17-jdk-headless"),
        ({"openjdk-21-jdk-headless", "openjdk-25-jdk-headless"}, "openjdk-21-jdk-headless"),
        (set(), "openjdk-21-jdk-headless"),
    ],
    ids=["Debian 12", "Debian 13", "another system"],
)
def test_the_newest_accepted_java_that_apt_has_is_installed(
    install: Install, monkeypatch: pytest.MonkeyPatch, offered: set[str], installed: str
) -> None:
    """With Maven, in one command; afterwards nothing is installed again."""
    wanted: list[str] = []

    def apt_install(packages: list[str], _: str) -> None:
        wanted.extend(packages)
        jdk._chosen.cache_clear()
        install(packages[0].split("-")[1], f"jvm/{packages[0]}")
        (install.directory / "bin").mkdir()
        (install.directory / "bin" / "mvn").touch(mode=0o755)

    monkeypatch.setattr(jdk, "has", offered.__contains__)
    monkeypatch.setattr(jdk, "update", lambda: None)
    monkeypatch.setattr(jdk, "install", apt_install)
    jdk._chosen.cache_clear()
    assert jdk.main() == jdk.main() == 0
    assert wanted == [installed, "maven"]


def test_who_is_not_root_gets_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """For an administrator, also on a machine without apt."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ToolMissingError, match=r"^It needs x. Without root .*: sudo apt-get install x$"):
        apt.install(["x"], "It needs x")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ToolMissingError, match=r"apt-get is missing"):
        apt.install(["x"], "It needs x")


def test_a_machines_own_settings_reach_no_test() -> None:
    """A variable that changes Python, a store, Spark or a JVM; those of registries and of the shell stay."""
    kept = {"PATH": os.environ["PATH"], "PIP_INDEX_URL": "x", "HOME": "/root", "LANG": "C"}
    foreign = ("PYTHONUNBUFFERED", "AWS_PROFILE", "SPARK_HOME", "TS_UPLOADER_CONFIG", "JDK_JAVA_OPTIONS")
    found = {**kept, **dict.fromkeys(foreign, "1")}
    isolate(found)
    assert not {*foreign} & {*found}
    assert {**found, **kept} == found
    assert found["SPARK_LOCAL_IP"] == "127.0.0.1"
    hosts = Path(found["SPARK_SUBMIT_OPTS"].partition("=")[2])
    assert hosts.read_text().split() == ["127.0.0.1", "localhost", socket.gethostname()]
    assert {name for name in foreign if name in os.environ} == set()
