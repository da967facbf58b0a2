"""The unit's confinement, as options of systemd-run."""

import os
import sys
from pathlib import Path

from tests.uploader.log_dirs.page_reader import READER

UNIT = Path(__file__).parents[3] / "deploy" / "ts-uploader.service"


def sandbox(kind: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "tests.deploy.sandbox", kind, str(UNIT))


# Mounting needs root, and the next command drops it.
CONFINED = (*(sandbox("disks") if os.geteuid() == 0 else ()), *READER, *sandbox("calls"))
