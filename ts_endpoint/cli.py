"""The command `ts-endpoint`."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Annotated, Final

import structlog
import typer

from ts_common.errors import CorruptData, OperatorError, StaleStateError, TransientError
from ts_common.logs import LogFormat, LogLevel, configure_logs
from ts_common.option_groups import version_option, with_groups
from ts_common.printable import printable_lines
from ts_endpoint.serving.line_limit import limit_lines
from ts_endpoint.serving.options import Options, check
from ts_endpoint.user_commands import users

EXIT_REFUSED: Final = 2  # the operator must act, as the message describes
EXIT_BROKEN: Final = 70  # EX_SOFTWARE: the supervisor should start the endpoint again
EXIT_TRY_AGAIN: Final = 75  # EX_TEMPFAIL: a store or an address is unavailable; start it again
_BY_SIGNAL: Final = 128  # the shell's code of a program that a signal ended

log = structlog.get_logger("ts_endpoint")
app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, no_args_is_help=True)
app.add_typer(users, name="user")


@app.callback()
def _commands(version: Annotated[bool, version_option("ts-endpoint")] = False) -> None:
    """Serve an archive of Kafka log segments to Kafka clients, read-only."""


@app.command()
@with_groups
def serve(
    *,
    options: Options,
    log_format: Annotated[LogFormat, typer.Option(help="One event per line, as text or JSON.")] = LogFormat.TEXT,
    log_level: Annotated[LogLevel, typer.Option(help="Lowest level that is logged.")] = LogLevel.INFO,
) -> None:
    """Serve an archive until SIGTERM or SIGINT; a second signal ends the process at once."""
    configure_logs(log_format, logging.getLevelNamesMapping()[log_level.upper()])
    limit_lines()
    settings = check(options)
    from ts_endpoint.serving.endpoint import serve as serve_until_stopped  # noqa: PLC0415  (a second, for serving only)

    _run_loop(serve_until_stopped(settings, _stop_on_signals))


def _run_loop(main: Coroutine[None, None, None]) -> None:
    """Run a coroutine as `asyncio.run` does, without its wait for threads whose requests were interrupted."""
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(main)
    finally:
        if pending := asyncio.all_tasks(loop):
            for task in pending:
                task.cancel()
            loop.run_until_complete(asyncio.wait(pending))
        loop.close()


def _stop_on_signals(stop: Callable[[], None]) -> None:
    """Call a function at the first signal, and end the process at the second."""
    loop = asyncio.get_running_loop()

    def received(number: signal.Signals) -> None:
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(each)
            signal.signal(each, lambda second, _: os._exit(_BY_SIGNAL + second))
        log.info("signal_received", signal=number.name)
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, received, number)


def main() -> None:
    """Run the command; errors that the operator must act on are one message and a non-zero exit, without traceback."""
    code = run(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # Not `sys.exit`: that would wait for a request to a store that was interrupted.
    os._exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        app(list(arguments), prog_name="ts-endpoint")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except (OperatorError, CorruptData) as error:
        return _report(error, EXIT_REFUSED)
    except (TransientError, StaleStateError) as error:
        return _report(f"{error}; start it again when that is resolved", EXIT_TRY_AGAIN)
    except Exception:
        log.exception("internal_error")
        return EXIT_BROKEN
    return 0


def _report(error: object, code: int) -> int:
    print(printable_lines(f"ts-endpoint: {error}"), file=sys.stderr)  # noqa: T201  (the command's own voice)
    return code


if __name__ == "__main__":
    main()
