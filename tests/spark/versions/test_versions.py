"""Every Spark version that the page names, each in an environment of its own; and the Pythons that this machine has."""

import json
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from dev.local.environment import spark_variables
from dev.local.jars import BUILD
from tests.common.log_format.build import TRANSACTIONAL, batch, marker, record
from tests.made_archive import batches, steps
from tests.spark.archives import Archive
from tests.spark.versions import process

ROOT: Final = Path(__file__).parents[3]
SPARKS: Final = ("4.0.5", "4.1.4", "4.2.1", "4.3.0")
PYTHONS: Final = ("3.12", "3.13")  # in addition to the one that runs the tests
IN_BATCHES: Final = (4, 2)  # from this version on `Trigger.AvailableNow` runs several batches
SECONDS: Final = 600


def python_of(version: str) -> str | None:
    """Return the program of a Python version on this machine; None if it is not installed."""
    candidates = [shutil.which(f"python{version}")]
    if (pyenv := shutil.which("pyenv")) is not None:
        listed = subprocess.run([pyenv, "prefix", version], capture_output=True, text=True, check=False)
        candidates += [f"{prefix}/bin/python" for prefix in listed.stdout.strip().split(":") if prefix]
    for candidate in candidates:
        if candidate is None or not Path(candidate).exists():
            continue
        asked = [candidate, "-c", "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"]
        if subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip() == version:
            return candidate
    return None


def environment(spark: str, python: str) -> Path:
    """The Python of an environment with a Spark version, made once per checkout."""
    asked = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    name = subprocess.run(asked, capture_output=True, text=True, check=True)
    place = BUILD / "spark-versions" / f"{spark}-{name.stdout.strip()}"
    own = place / "bin/python"
    if not (place / "ready").exists():
        shutil.rmtree(place, ignore_errors=True)
        subprocess.run([python, "-m", "venv", str(place)], check=True)
        pip = [str(own), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--require-hashes", "-r", str(ROOT / "requirements/build.txt")], check=True)
        subprocess.run([*pip, "--require-hashes", "-r", str(ROOT / "requirements/spark.txt")], check=True)
        subprocess.run([*pip, "--no-build-isolation", f"pyspark=={spark}"], check=True)
        (place / "ready").touch()
    return own


def answer_of(python: Path, archive: Archive, folder: Path) -> dict[str, Any]:
    """What a driver in that environment reads."""
    run = subprocess.run(
        [str(python), str(Path(process.__file__))],
        input=json.dumps({"options": archive.options(), "folder": str(folder)}),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        cwd=folder,
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": str(python),
            "HOME": str(folder),
            **spark_variables(),
        },
        check=False,
    )
    assert run.returncode == 0, run.stderr[-4000:]
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


def filled(archive: Archive) -> Archive:
    """`t`: a hundred records; `tx`: a transaction that is aborted between two that are committed."""
    for base in (0, 50):
        archive.put_segment("t", base, batches(*steps(base, base + 50)))
    archive.commit("t", 100, highest_base=50)
    log = b"".join(
        batch(10 * number, [record(delta) for delta in range(9)], attributes=TRANSACTIONAL, producer_id=7)
        + marker(10 * number + 9, 7, int(number != 1))
        for number in range(3)
    )
    aborted = struct.pack(">hqqqq", 0, 7, 10, 19, 20)
    archive.put_segment("tx", 0, log, txnindex=aborted)
    archive.commit("tx", 30)
    return archive


def check(found: dict[str, Any], archive: Archive) -> None:
    """The same as this process reads, whatever the version."""
    rows = archive.rows(subscribe="t", includeHeaders="true")
    assert found["all"] == process.digest(rows)
    assert len(rows) == 100
    assert (found["committed"], found["uncommitted"]) == (18, 27)
    assert found["schema"].endswith("timestampType:int,headers:array<struct<key:string,value:binary>>>")
    assert found.get("filtered", list(range(5))) == list(range(5))
    several = tuple(map(int, found["pyspark"].split(".")[:2])) >= IN_BATCHES
    assert found["stream"]["batches"] == ([4, 4] if several else [1, 2])
    assert found["stream"]["offsets"] == list(range(100 if several else 2 * int(process.LIMIT)))


@pytest.mark.full
@pytest.mark.parametrize("spark", SPARKS)
def test_each_spark_version_reads_the_same(spark: str, archive: Archive, tmp_path: Path) -> None:
    """Batches, headers, isolation, filters, and streams with limits and `Trigger.AvailableNow`."""
    found = answer_of(environment(spark, sys.executable), filled(archive), tmp_path)
    assert found["pyspark"] == spark
    check(found, archive)


@pytest.mark.full
def test_each_python_of_this_machine_reads_the_same(
    archive: Archive, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The newest Spark under each installed Python; the run reports which are missing."""
    filled(archive)
    tried = []
    for version in PYTHONS:
        python = python_of(version)
        if python is None:
            with capsys.disabled():
                print(f"\nnot tried: Python {version}, which this machine does not have")  # noqa: T201
            continue
        folder = tmp_path / version
        folder.mkdir()
        found = answer_of(environment(SPARKS[-1], python), archive, folder)
        assert found["python"] == version
        check(found, archive)
        tried.append(version)
    with capsys.disabled():
        print(f"\ntried: Spark {SPARKS[-1]} under Python {', '.join(tried) or 'no other'}")  # noqa: T201
