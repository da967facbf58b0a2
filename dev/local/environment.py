"""The environment of the demo, the tests and the benchmarks: a machine's own settings change none of them."""

import os
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Final

from dev.local import jdk
from dev.local.apt import ToolMissingError
from dev.local.jvm import named_host
from dev.local.ports import LOOPBACK

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
    environment.pop("no_proxy", None)  # it counts before the other one, which tests set
    environment.update({"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull, "NO_PROXY": LOOPBACK})
    with suppress(ToolMissingError):  # the first server that needs it reports it
        environment.update(spark_variables())


def spark_variables() -> dict[str, str]:
    """Return the variables that Spark needs on any host: without an address of its name Spark starts no JVM.

    It is looked up also where another address is given: `SparkHadoopUtil` puts it into the source of S3's credentials.

    Raises:
        ToolMissingError: Java is missing.
    """
    (option,) = named_host()
    return {**jdk.variables(), "SPARK_LOCAL_IP": LOOPBACK, "SPARK_SUBMIT_OPTS": option}
