"""docs/spark-clusters.md: its commands read an archive with executors in processes of their own."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dev.dist import build as build_release
from dev.local.waiting import wait_for
from tests.deploy.image import Build, stages_of
from tests.docs.commands import CHECKOUT, CommandFailedError, Shell, blocks
from tests.made_archive import batches, steps
from tests.spark.archives import Archive
from tests.spark.clusters.environment import pack_environment, shell_environment, spark_home

PAGE = CHECKOUT / "docs/spark-clusters.md"
DOCKERFILE = CHECKOUT / "deploy/spark/Dockerfile"
LOCATION = "s3://bucket/base/prefix"
(CHECK,) = blocks(PAGE, "Check", language="python")
(PACK,) = blocks(PAGE, "Pack the environment", language="sh")
(WITH_ARCHIVES,) = blocks(PAGE, "spark-submit with --archives", language="sh")
(ON_ONE_HOST,) = blocks(PAGE, "Executors on one host", language="sh")
SERVER, CLIENT = blocks(PAGE, "Spark Connect", language="sh")


@pytest.fixture
def filled(archive: Archive) -> Archive:
    """Two partitions of 100 records each, as the page shows."""
    for partition in range(2):
        for base in (0, 50):
            archive.put_segment("clicks", base, batches(*steps(base, base + 50)), partition=partition)
        archive.commit("clicks", 100, highest_base=50, partition=partition)
    return archive


def shell_in(directory: Path, archive: Archive, home: Path) -> Shell:
    """Return a shell that runs the page's blocks on an archive, with `check.py` in its directory."""
    directory.mkdir(exist_ok=True)
    (directory / "check.py").write_text(CHECK.text)
    return Shell(directory, {LOCATION: archive.location}, environment=shell_environment(home))


@pytest.mark.full
def test_executors_read_with_the_environment_that_spark_unpacked_for_them(filled: Archive, tmp_path: Path) -> None:
    """The page's command and what it prints; the driver's own Python does not have the package."""
    home = spark_home(tmp_path)
    job = tmp_path / "job"
    shell = shell_in(job, filled, home)
    pack_environment(job)
    assert shell.run(WITH_ARCHIVES).rstrip().endswith(CHECK.shown.rstrip())
    work = home / "work"
    compiled = {path.relative_to(work).parts[1] for path in work.rglob("environment/**/ts_reader/**/*.o")}
    assert compiled, "no executor compiled the decoder in its own copy"
    assert not list((job / "environment").rglob("ts_reader/**/*.o")), "the driver's copy decoded records"


@pytest.mark.full
def test_two_settings_that_look_right_do_not_find_the_package(filled: Archive, tmp_path: Path) -> None:
    """As the page warns: Spark searches the Python of the driver's environment variables, and no other."""
    shell = shell_in(tmp_path / "job", filled, spark_home(tmp_path))
    pack_environment(shell.directory)
    submit = f"spark-submit --master 'local[1]' check.py {LOCATION} prod clicks"
    with pytest.raises(CommandFailedError, match="DATA_SOURCE_NOT_FOUND"):
        shell.run(submit.replace("check.py", "--conf spark.pyspark.python=./environment/bin/python check.py"))
    without = Path(sys.base_prefix) / "bin/python3"
    with pytest.raises(CommandFailedError, match="DATA_SOURCE_NOT_FOUND"):
        shell.run(f"PYSPARK_DRIVER_PYTHON={without} PYSPARK_PYTHON=./environment/bin/python {submit}")


@pytest.mark.full
def test_the_page_runs_from_packing_to_spark_connect(filled: Archive, tmp_path: Path) -> None:
    """With venv-pack, a client without Spark, and what pip fetches."""
    release = build_release(tmp_path / "dist")
    shell = shell_in(release, filled, spark_home(tmp_path))
    python = Path(sys.base_prefix) / f"bin/python3.{sys.version_info.minor}"
    shell.places["python3"] = str(python)
    shell.run(PACK)
    for block in (WITH_ARCHIVES, ON_ONE_HOST):
        assert shell.run(block).rstrip().endswith(CHECK.shown.rstrip())
    log = tmp_path / "server.log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            ["bash", "-c", SERVER.text],
            cwd=release,
            env=shell.environment,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        wait_for(lambda: "Spark Connect server started" in log.read_text(), "the server of Spark Connect", seconds=120)
        assert shell.run(CLIENT).rstrip().endswith(CHECK.shown.rstrip())
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(60)


@pytest.mark.full
def test_the_environment_of_the_image_is_built_from_a_release(tmp_path: Path) -> None:
    """With a real pip; the image's other stages copy from images that this host does not have."""
    programs = tmp_path / "bin"
    programs.mkdir()
    base = Path(sys.base_prefix) / f"bin/python3.{sys.version_info.minor}"
    (programs / "python").write_text(f'#!/bin/bash\nexec {base} "$@"\n')
    (programs / "python").chmod(0o755)
    build = Build(tmp_path, build_release(tmp_path / "dist"), stages_of(DOCKERFILE.read_text()), str(programs))
    python = build.root("build") / "opt/venv/bin/python"
    command = [str(python), "-c", "import ts_reader.query.read_split, ts_common.store.s3.driver"]
    subprocess.run(command, cwd="/", env={**os.environ, "PYTHONPATH": ""}, check=True)


def test_the_image_runs_the_python_that_it_contains_without_root() -> None:
    """`PYSPARK_PYTHON` is the interpreter of the environment that the image copies; the user is Spark's."""
    executor = stages_of(DOCKERFILE.read_text())["executor"]
    copied = {rest.split()[-1] for word, rest in executor.steps if word == "COPY"}
    variables = " ".join(rest for word, rest in executor.steps if word == "ENV")
    (python,) = re.findall(r"PYSPARK_PYTHON=(\S+)", variables)
    assert python.removesuffix("/bin/python") in copied
    assert executor.last("USER") == "185:185"
