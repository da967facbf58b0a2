"""The start of a command whose packages may be missing: the wheel has both commands, and each needs an extra."""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import cast

_REFUSED = 2


def start(program: str, module: str, extra: str) -> None:
    """Run the function `main` of a module; without a package that it needs, write one message and exit with 2.

    Args:
        program: name of the command.
        module: of the command.
        extra: name of the extra with its packages.

    Raises:
        ModuleNotFoundError: a module of the project itself is missing.
    """
    try:
        main = cast("Callable[[], None]", import_module(module).main)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing.startswith("ts_") or missing == program:
            raise
        print(  # noqa: T201  (the command's own voice)
            f"{program}: the package {missing} is not installed in {sys.prefix}; install the release there with "
            f"requirements/{extra}.txt, or the wheel with the extra [{extra}]",
            file=sys.stderr,
        )
        sys.exit(_REFUSED)
    main()
