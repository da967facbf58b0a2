"""The environment of the demo, the tests and the benchmarks: a machine's own settings change none of them."""

import os
import socket
import tempfile
from collections.abc import MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from ts_local import jdk
from ts_local.apt import ToolMissingError
from ts_local.jars import BUILD
from ts_local.ports import LOOPBACK

# PYTHONUNBUFFERED, for example, hides output that is not flushed.
_FOREIGN: Final = (
    *("AWS_", "AZURE_", "GOOGLE_", "STORAGE_EMULATOR_", "HADOOP_", "KAFKA_", "KRB5", "SPARK_", "PYSPARK_"),
    *("PYICEBERG_", "PYTHON", "TS_UPLOADER_", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "CLASSPATH"),
    *("TZ", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"),
)


def isolate(environment: MutableMapping[str, str] = os.environ) -> None:
    """Remove a machine's own settings, and give Java and loopback to each process that this one starts.

    Args:
        environment: to change.
    """
    for name in [name for name in environment if name.startswith(_FOREIGN)]:
        del environment[name]
    environment.update({"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull})
    environment.update(dict.fromkeys(("no_proxy", "NO_PROXY"), LOOPBACK))
    with suppress(ToolMissingError):  # the first server that needs it reports it
        environment.update(spark_variables())


def spark_variables() -> dict[str, str]:
    """Return the variables that Spark needs on any host.

    Spark uses the address of the host's name, also where another one is given: its `SparkHadoopUtil` writes it into the
    source of S3's credentials. The name need not have an address, so Spark's JVM gets one.

    Raises:
        ToolMissingError: Java is missing.
    """
    hosts = BUILD / "hosts"
    wanted = f"{LOOPBACK} localhost {socket.gethostname()}\n"
    if not hosts.exists() or hosts.read_text() != wanted:
        BUILD.mkdir(exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=BUILD, delete=False) as file:
            file.write(wanted)
        Path(file.name).replace(hosts)
    options = f"-Djdk.net.hosts.file={hosts}"
    return {**jdk.variables(), "SPARK_LOCAL_IP": LOOPBACK, "SPARK_SUBMIT_OPTS": options}
