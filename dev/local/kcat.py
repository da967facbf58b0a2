"""kcat, the command of librdkafka, from Debian's package.

`kcat()` is the command and its environment: of this machine, or unpacked below `build/`, without installing it.
`python -m dev.local.kcat` fetches it, so that a later test needs no network.
"""

import os
import shutil
import sys
from pathlib import Path
from typing import Final

from dev.local.debian import libraries, unpacked
from dev.local.jars import print_fetched

_PROGRAM: Final = "kcat"


def kcat() -> tuple[str, dict[str, str]]:
    """Return the path of kcat, fetched if needed, and the environment that it needs.

    Raises:
        ToolMissingError: it is missing, and apt is too, or has no such package.
        BuildFailedError: apt or dpkg failed.
    """
    found = shutil.which(_PROGRAM)
    if found is not None:
        return found, dict(os.environ)
    root = unpacked(_PROGRAM, [_PROGRAM], _PROGRAM)
    return str(root / "usr" / "bin" / _PROGRAM), {**os.environ, **libraries(root)}


def main() -> int:
    """Fetch it and print its path."""
    return print_fetched((_PROGRAM, lambda: Path(kcat()[0])))


if __name__ == "__main__":
    sys.exit(main())
