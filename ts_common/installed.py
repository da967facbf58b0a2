"""The start of a command whose packages may be missing: the wheel has both commands, and each needs an extra."""

import gc
import sys
from collections.abc import Callable

_REFUSED = 2
_INTERRUPTED = 130  # 128 + SIGINT, as in a shell
_OWN = {"tsctl", "pyspark_kafka_segments"}  # the other packages of the wheel begin with ts_


def start(program: str, load: Callable[[], Callable[[], None]], extra: str) -> None:
    """Run a command; without a package that it needs, write one message and exit with 2.

    Ctrl-C during the imports exits with 130. `--version` alone loads nothing: a probe of a host pays for no import.

    Args:
        program: name of the command.
        load: imports the command, and returns its main function.
        extra: name of the extra with its packages.

    Raises:
        ModuleNotFoundError: a module of the project itself is missing.
    """
    if sys.argv[1:] == ["--version"]:
        print(program, version())  # noqa: T201  (the command's own voice)
        return
    try:
        _load_structlog()
        main = load()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    except ModuleNotFoundError as error:
        message = missing_package(error, extra)
        if message is None:
            raise
        print(f"{program}: {message}", file=sys.stderr)  # noqa: T201  (the command's own voice)
        sys.exit(_REFUSED)
    try:
        main()
    finally:
        gc.freeze()  # Python collects garbage thrice as it exits: 60 ms over the objects of 700 modules


class Hidden:
    """A finder of packages that count as missing. A library must not hide what its program may use.

    Some libraries import a package only because it is there. `None` in `sys.modules` is not enough: Cython returns it.
    """

    def __init__(self, *packages: str) -> None:
        self._packages = packages

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        """Find nothing.

        Raises:
            ModuleNotFoundError: the package counts as missing.
        """
        if name in self._packages:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _load_structlog() -> None:
    """Import structlog without rich: 60 ms of each start, for drawn tracebacks that no command shows."""
    hidden = Hidden("rich")
    sys.meta_path.insert(0, hidden)
    try:
        import structlog  # noqa: F401, PLC0415  (its packages may be missing)
    finally:
        sys.meta_path.remove(hidden)


def version() -> str:
    """Return the version of the installed release."""
    from importlib import metadata  # noqa: PLC0415  (25 ms, and few starts need it)

    return metadata.version("ts-uploader")


def missing_package(error: ModuleNotFoundError, extra: str) -> str | None:
    """Return a message with the way out; None if the missing module is one of the project itself.

    Args:
        extra: name of the extra with the command's packages.
    """
    missing = (error.name or "").partition(".")[0]
    if missing.startswith("ts_") or missing in _OWN or not missing:
        return None
    return (
        f"the package {missing} is not installed in {sys.prefix}; install the release there with "
        f"requirements/{extra}.txt, or the wheel with the extra [{extra}]"
    )
