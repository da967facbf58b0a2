"""The environment of the demo, the tests and the benchmarks: what this machine sets must change neither of them."""

import os
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Final

from ts_local import jdk
from ts_local.apt import ToolMissingError
from ts_local.ports import LOOPBACK

# PYTHONUNBUFFERED, for example, hides output that is not flushed.
_FOREIGN: Final = (
    *(
        "AWS_",
        "AZURE_",
        "GOOGLE_",
        "STORAGE_EMULATOR_",
        "HADOOP_",
        "KAFKA_",
        "KRB5",
        "SPARK_",
        "PYSPARK_",
        "PYICEBERG_",
    ),
    *("PYTHON", "TS_UPLOADER_", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "CLASSPATH"),
    *("TZ", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"),
)


def isolate(environment: MutableMapping[str, str] = os.environ) -> None:
    """Remove a machine's own settings, and give Java and loopback to each process that this one starts.

    Without it Spark uses the address of the host's name, and a host's name need not have one.

    Args:
        environment: to change.
    """
    for name in [name for name in environment if name.startswith(_FOREIGN)]:
        del environment[name]
    environment.update({"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull})
    environment.update(dict.fromkeys(("no_proxy", "NO_PROXY"), LOOPBACK))
    environment["SPARK_LOCAL_IP"] = LOOPBACK
    with suppress(ToolMissingError):  # the first server that needs it reports it
        environment.update(jdk.variables())
