"""The command `tsctl`: its commands, and how it ends.

A command returns where all is fine, and raises `typer.Exit` with another `ExitCode`. Errors of ours end here, as one
message.
"""

import logging
import signal
import sys
import traceback
from collections.abc import Sequence
from importlib import metadata
from io import TextIOWrapper
from typing import Annotated

import typer

from ts_common.errors import OperatorError, PermanentError, StaleStateError, TransientError
from ts_common.logs import LogFormat, configure_logs
from ts_common.printable import printable_lines
from ts_common.redaction import redacted
from tsctl.commands.adopt import adopt_topic_id
from tsctl.commands.cat import cat
from tsctl.commands.gaps import gaps
from tsctl.commands.get import get
from tsctl.commands.ls import ls
from tsctl.commands.report import report
from tsctl.commands.status import status
from tsctl.commands.verify import verify
from tsctl.exit_codes import ExitCode
from tsctl.output import ReaderGone, flush

app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, no_args_is_help=True)


def _say_version(asked: bool) -> None:
    if asked:
        print(f"tsctl {metadata.version('ts-uploader')}")  # noqa: T201  (the command's own voice)
        raise typer.Exit


@app.callback()
def _commands(
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """List, read and verify an archive of Kafka log segments, without a broker."""


app.command()(ls)
app.command()(verify)
app.command()(report)
app.command()(gaps)
app.command()(cat)
app.command()(get)
app.command()(status)
app.command()(adopt_topic_id)


def main() -> None:
    """Entry point: what somebody must act on is one message and a non-zero exit, without a traceback."""
    configure_logs(LogFormat.TEXT, logging.WARNING)
    for ending in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C: what is half done is cleared away
        if signal.getsignal(ending) is signal.SIG_DFL:  # under nohup it is not
            signal.signal(ending, signal.default_int_handler)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8")  # JSON is that, whatever the locale
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> ExitCode:
    """Run one command line to its end; what it has to say has been said."""
    try:
        try:
            app(list(arguments), prog_name="tsctl")
        finally:
            flush()
    except SystemExit as ended:
        return ExitCode(ended.code if isinstance(ended.code, int) else ended.code is not None)
    except ReaderGone:
        return ExitCode.FINE
    except OperatorError as error:
        return _said(error, ExitCode.REFUSED)
    except (TransientError, StaleStateError) as error:
        return _said(error, ExitCode.TRY_AGAIN)
    except PermanentError as error:
        return _said(error, ExitCode.FOUND)
    except Exception:  # noqa: BLE001  (the one place that says of a bug of ours that it is one)
        print(printable_lines(redacted(traceback.format_exc())), file=sys.stderr)  # noqa: T201  (as below)
        print("tsctl: ended by an error of its own, not of the user's", file=sys.stderr)  # noqa: T201  (the command's own voice)
        return ExitCode.BROKEN
    return ExitCode.FINE


def _said(error: Exception, code: ExitCode) -> ExitCode:
    print(printable_lines(f"tsctl: {error}"), file=sys.stderr)  # noqa: T201  (the command's own voice)
    return code


if __name__ == "__main__":
    main()
