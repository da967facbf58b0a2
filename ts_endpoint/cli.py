"""The command `ts-endpoint`."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

import structlog
import typer

from ts_common.errors import CorruptData, OperatorError, StaleStateError, TransientError
from ts_common.installed import version
from ts_common.logs import LogFormat, LogLevel, configure_logs
from ts_common.printable import printable_lines
from ts_endpoint.serving.line_limit import limit_lines
from ts_endpoint.serving.options import ON_HOLE, GroupOffsets, Options, check
from ts_endpoint.user_commands import users
from ts_reader.options.archive_name import CONFIG_VARIABLE

EXIT_REFUSED: Final = 2  # the operator must act, as the message describes
EXIT_BROKEN: Final = 70  # EX_SOFTWARE: the supervisor should start the endpoint again
EXIT_TRY_AGAIN: Final = 75  # EX_TEMPFAIL: a store or an address is unavailable; start it again
_BY_SIGNAL: Final = 128  # the shell's code of a program that a signal ended

log = structlog.get_logger("ts_endpoint")
app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, no_args_is_help=True)
app.add_typer(users, name="user")


def _print_version(wanted: bool) -> None:
    if wanted:
        print("ts-endpoint", version())  # noqa: T201  (the command's own voice)
        raise typer.Exit


@app.callback()
def _commands(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Serve an archive of Kafka log segments to Kafka clients, read-only."""


@app.command()
def serve(
    config: Annotated[
        Path | None,
        typer.Option(
            help=f"The agents' <clusterId>.properties, or its directory; default without --url: ${CONFIG_VARIABLE}.",
            metavar="FILE_OR_DIR",
        ),
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="Location of the store, as in s3://bucket/base/prefix; instead of --config.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(help="The cluster's id; with --url, or a directory of several files.")
    ] = None,
    entropy_bits: Annotated[
        int | None, typer.Option(help="Number of entropy bits of the keys, with --url; default: from the archive.")
    ] = None,
    listen: Annotated[str, typer.Option(help="host:port that clients connect to.")] = "127.0.0.1:9092",
    advertise: Annotated[
        str | None, typer.Option(help="host:port as clients reach this process.  [default: --listen]")
    ] = None,
    peers: Annotated[
        str | None,
        typer.Option(
            help="All processes of a cluster, this one too, the same list in each: host:port,... as clients reach "
            "them; host:port=host:port,... where their --http-address has another host or port."
        ),
    ] = None,
    http_address: Annotated[str, typer.Option(help="host:port of /metrics, /healthz and /readyz.")] = "127.0.0.1:9465",
    refresh: Annotated[float, typer.Option(help="Seconds until new topics and segments are looked for again.")] = 30.0,
    on_hole: Annotated[
        Literal["fail", "skip"],
        typer.Option(help="Where offsets are lost: end the partition with an error, or pass over and log it."),
    ] = "fail",
    incarnations: Annotated[
        bool, typer.Option("--incarnations", help="Serve former incarnations of topics too, as topic~id.")
    ] = False,
    groups: Annotated[
        GroupOffsets, typer.Option(help="Where committed offsets of groups are kept; store needs write access.")
    ] = GroupOffsets.STORE,
    tls_certificate: Annotated[Path | None, typer.Option(help="PEM file of the listener's certificate chain.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM file of its key, without a password.")] = None,
    tls_client_ca: Annotated[
        Path | None, typer.Option(help="PEM file of authorities: clients need a certificate of one (mutual TLS).")
    ] = None,
    users: Annotated[
        Path | None, typer.Option(help="File of users, their topics, groups and quotas; see ts-endpoint user.")
    ] = None,
    sasl_mechanism: Annotated[
        list[str] | None,
        typer.Option(help="SCRAM-SHA-256, SCRAM-SHA-512 or PLAIN; repeat it.  [default: all that are safe]"),
    ] = None,
    allow_plaintext_passwords: Annotated[
        bool, typer.Option("--allow-plaintext-passwords", help="Offer PLAIN without TLS.")
    ] = False,
    audit_log: Annotated[
        Path | None, typer.Option(help="File of who read what, one JSON object in each line.  [default: the log]")
    ] = None,
    max_connections: Annotated[int, typer.Option(help="Most connections at once.")] = 5000,
    max_connections_per_host: Annotated[int, typer.Option(help="Most of one client address.")] = 2000,
    in_flight_mib: Annotated[int, typer.Option(help="MiB of replies that clients have not received.")] = 256,
    cache_mib: Annotated[int, typer.Option(help="MiB of segments in memory.")] = 256,
    log_format: Annotated[LogFormat, typer.Option(help="One event per line, as text or JSON.")] = LogFormat.TEXT,
    log_level: Annotated[LogLevel, typer.Option(help="Lowest level that is logged.")] = LogLevel.INFO,
) -> None:
    """Serve an archive until SIGTERM or SIGINT; a second signal ends the process at once."""
    configure_logs(log_format, logging.getLevelNamesMapping()[log_level.upper()])
    limit_lines()
    options = Options(
        config=config,
        url=url,
        cluster=cluster,
        entropy_bits=entropy_bits,
        listen=listen,
        advertise=advertise,
        peers=peers,
        http_address=http_address,
        refresh=refresh,
        on_hole=ON_HOLE[on_hole],
        incarnations=incarnations,
        groups=groups,
        tls_certificate=tls_certificate,
        tls_key=tls_key,
        tls_client_ca=tls_client_ca,
        users=users,
        sasl_mechanisms=sasl_mechanism or (),
        allow_plaintext_passwords=allow_plaintext_passwords,
        audit_log=audit_log,
        max_connections=max_connections,
        max_connections_per_host=max_connections_per_host,
        in_flight_mib=in_flight_mib,
        cache_mib=cache_mib,
    )
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
