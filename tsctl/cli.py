"""The command `tsctl`: its subcommands and exit codes.

A command that finds nothing to report returns. Otherwise it raises `typer.Exit` with an `ExitCode`. An error of this
project ends the command with one message.
"""

import logging
import signal
import sys
import traceback
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated, Any, Final

import typer
from typer.main import get_command

from ts_common.errors import OperatorError, PermanentError, StaleStateError, TransientError
from ts_common.installed import missing_package
from ts_common.logs import LogFormat, configure_logs
from ts_common.option_groups import version_option
from ts_common.printable import printable_lines
from ts_common.redaction import redacted
from tsctl.exit_codes import ExitCode, code_of
from tsctl.output import ReaderGone, flush

# Each command, with its module and its function, in the order of the help.
_COMMANDS: Final = {
    "ls": ("ls", "ls"),
    "verify": ("verify", "verify"),
    "repair": ("repair", "repair"),
    "restore": ("restore", "restore"),
    "drill": ("drill", "drill"),
    "report": ("report", "report"),
    "gaps": ("gaps", "gaps"),
    "cat": ("cat", "cat"),
    "find": ("find", "find"),
    "get": ("get", "get"),
    "thaw": ("thaw", "thaw"),
    "consume": ("consume", "consume"),
    "sql": ("sql", "sql"),
    "tables": ("tables", "tables"),
    "hold": ("hold", "hold"),
    "seal": ("seal", "seal"),
    "prove": ("prove", "prove"),
    "meta": ("meta", "meta"),
    "status": ("status", "status"),
    "cost": ("cost", "cost"),
    "gc": ("gc", "gc"),
    "erase": ("erase", "erase"),
    "adopt-topic-id": ("adopt", "adopt_topic_id"),
}


def _commands(version: Annotated[bool, version_option("tsctl")] = False) -> None:
    """List, read and verify an archive of Kafka log segments, without a broker."""


def commands(*names: str) -> typer.Typer:
    """Return the program with some of its commands; without a name with all.

    A command's module imports what that command needs, and the others' imports take longer than many commands run.
    """
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, no_args_is_help=True)
    app.callback()(_commands)
    for name in names or _COMMANDS:
        module, function = _COMMANDS[name]
        found = getattr(import_module(f"tsctl.commands.{module}"), function)
        if isinstance(found, typer.Typer):  # a command with commands of its own
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)
    return app


@cache  # a process that runs many command lines
def _program(*names: str) -> Any:
    return get_command(commands(*names))


def main() -> None:
    """Run the command; an error that an operator can act on is one message and a non-zero exit code."""
    configure_logs(LogFormat.TEXT, logging.WARNING)
    for ending in (signal.SIGTERM, signal.SIGHUP):  # As for Ctrl-C: partial files are removed.
        if signal.getsignal(ending) is signal.SIG_DFL:  # nohup ignores SIGHUP
            signal.signal(ending, signal.default_int_handler)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8")  # JSON is UTF-8 in every locale
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> ExitCode:
    """Run one command line and return its exit code."""
    try:
        try:
            # An option before the command, a wrong name and a shell's completion need all names.
            named = arguments[:1] if arguments and arguments[0] in _COMMANDS else ()
            _program(*named)(list(arguments), prog_name="tsctl")
        finally:
            flush()
    except SystemExit as ended:
        return ExitCode(ended.code if isinstance(ended.code, int) else ended.code is not None)
    except ReaderGone:
        return ExitCode.FINE
    except KeyboardInterrupt:  # during the imports of a command
        return ExitCode.INTERRUPTED
    except (OperatorError, TransientError, StaleStateError, PermanentError) as error:
        return _report(error, code_of(error))
    except Exception as error:  # noqa: BLE001  (the only place that reports a bug of this project)
        if isinstance(error, ModuleNotFoundError) and (message := missing_package(error, "tsctl")) is not None:
            return _report(message, ExitCode.REFUSED)
        print(printable_lines(redacted(traceback.format_exc())), file=sys.stderr)  # noqa: T201  (as below)
        print("tsctl: internal error; please report it", file=sys.stderr)  # noqa: T201  (the command's own voice)
        return ExitCode.BROKEN
    return ExitCode.FINE


def _report(error: object, code: ExitCode) -> ExitCode:
    print(printable_lines(f"tsctl: {error}"), file=sys.stderr)  # noqa: T201  (the command's own voice)
    return code


if __name__ == "__main__":
    main()
