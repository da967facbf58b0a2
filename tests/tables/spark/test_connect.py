"""Runs, a compaction and a verification by Spark Connect."""

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.full
def test_a_session_of_spark_connect_does_what_another_one_does(tmp_path: Path) -> None:
    """With a real server, which runs the tasks in Python workers of its own."""
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_DIRS": str(tmp_path / "spark")}
    packages = tmp_path / "packages"
    version = importlib.metadata.version("grpcio")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", f"--target={packages}"]
    subprocess.run([*install, f"grpcio-status=={version}"], check=True)  # the one package of a client that is missing
    environment["PYTHONPATH"] = os.pathsep.join([str(packages), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "tests.tables.spark.connect_process", str(tmp_path)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)
    assert ended.returncode == 0, ended.stderr[-5000:]
    assert json.loads(ended.stdout.splitlines()[-1]) == {
        "session": "pyspark.sql.connect.session",
        "records": [100] * 6,
        "rewritten": 12,
        "files": 1,
        "rows": 600,
        "differences": [],
    }
