"""The command `ts-uploader`."""

import gc
import logging
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import structlog
import typer

from ts_common.config.cluster_config import ClusterConfig, load_config
from ts_common.config.plugins import load_class
from ts_common.endpoints.provider import EndpointProvider, open_provider
from ts_common.errors import ConfigurationError, OperatorError, TransientError
from ts_common.logs import LogFormat, LogLevel, configure_logs
from ts_common.model import is_cluster_id
from ts_common.option_groups import version_option, with_groups
from ts_uploader import findings
from ts_uploader.agent import Agent
from ts_uploader.environment import CHOICE_OF_FILE, Environment, EnvironmentProvider, ServerPropertiesEnvironment
from ts_uploader.findings import exit_code
from ts_uploader.preflight import check as checks
from ts_uploader.process.footprint import bound_arenas, lower_priority

EXIT_REFUSED = 2  # the operator must act, as the message describes
EXIT_BROKEN = 70  # EX_SOFTWARE: the supervisor should start the agent again
EXIT_TRY_AGAIN = 75  # EX_TEMPFAIL: an external service is unavailable; the supervisor should start the agent again

log = structlog.get_logger()

_COLLECTED_AT: Final = 10_000  # objects: garbage in cycles is rare, and then a few MB
app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, no_args_is_help=True)


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """The options that name a broker (`ts_common.option_groups`)."""

    server_properties: Annotated[
        Path | None,
        typer.Option(
            envvar="KAFKA_SERVER_PROPERTIES",  # which the unit's environment file sets
            help="The broker's file, with broker.id or node.id, log.dirs, zookeeper.connect or listeners.",
        ),
    ] = None
    cluster_id: Annotated[
        str | None,
        typer.Option(help="Name of the properties file and part of every key; default: from meta.properties."),
    ] = None
    environment_provider: Annotated[
        str | None, typer.Option(help="module:Class that describes the broker instead.")
    ] = None

    def load(self) -> Environment:
        """Return the broker's environment.

        Raises:
            ConfigurationError: it cannot be read, or its cluster id cannot name a file.
        """
        provider: type[EnvironmentProvider] = ServerPropertiesEnvironment
        if self.environment_provider is not None:
            provider = load_class(self.environment_provider, EnvironmentProvider, "--environment-provider")  # type: ignore[type-abstract]
        environment = provider(self.server_properties, self.cluster_id).load()
        if not is_cluster_id(environment.cluster_id):
            raise ConfigurationError(
                "--environment-provider", [f"cluster id {environment.cluster_id!r} cannot name a file"]
            )
        return environment


_RunsAlone = typer.Option(help="An option of run; check accepts it, so that it can have the unit's arguments.")


@app.callback()
def _commands(version: Annotated[bool, version_option("ts-uploader")] = False) -> None:
    """Ships closed Kafka log segments to object storage."""


@app.command()
@with_groups
def run(
    config_dir: Annotated[Path, typer.Argument(help="Directory of <clusterId>.properties.", metavar="CONFIG_DIR")],
    broker: BrokerOptions,
    http_address: Annotated[
        str, typer.Option(help="host:port of the status page, /status.json, /healthz, /readyz, /metrics.")
    ] = "127.0.0.1:9464",
    log_format: Annotated[LogFormat, typer.Option(help="One event per line, as text or JSON.")] = LogFormat.TEXT,
    log_level: Annotated[LogLevel, typer.Option(help="Lowest level that is logged.")] = LogLevel.INFO,
) -> None:
    """Run the agent of a broker until SIGTERM; SIGHUP reloads its configuration."""
    bound_arenas()
    configure_logs(log_format, logging.getLevelNamesMapping()[log_level.upper()])
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the configuration is about to be read
    agent = _build(config_dir, broker.load(), http_address)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: agent.stop(signal.Signals(received).name))
    signal.signal(signal.SIGHUP, lambda *_: agent.reload())
    # A whole collection needs 75 ms over the objects of 700 modules, and 0.2 s more with those of 10,000 partitions. By
    # default the start of these causes sixty, and a live tail several a minute.
    gc.freeze()
    gc.set_threshold(_COLLECTED_AT, 10, 10)
    agent.run()


@app.command()
@with_groups
def check(
    config_dir: Annotated[Path, typer.Argument(help="Directory of <clusterId>.properties.", metavar="CONFIG_DIR")],
    broker: BrokerOptions,
    http_address: Annotated[str, _RunsAlone] = "",
    log_format: Annotated[LogFormat | None, _RunsAlone] = None,
    log_level: Annotated[LogLevel | None, _RunsAlone] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if there are warnings.")] = False,
) -> None:
    """Check everything that an agent needs and report all findings at once; ship nothing."""
    del http_address, log_format, log_level
    bound_arenas()
    configure_logs(LogFormat.TEXT, logging.CRITICAL)  # the findings contain all that matters
    found = checks.check(broker.load, config_dir, broker.cluster_id)
    code = exit_code(found, strict=strict)
    print(findings.as_json(found, code) if as_json else findings.as_text(found), end="")  # noqa: T201
    raise typer.Exit(code)


def _build(config_dir: Path, environment: Environment, http_address: str) -> Agent:
    path = config_dir / f"{environment.cluster_id}.properties"
    if config_dir.is_file():
        raise ConfigurationError(str(config_dir), ["this is a file; name the directory that contains it"])
    if not config_dir.is_dir():
        raise ConfigurationError(str(config_dir), ["no such directory; expected one with <clusterId>.properties"])

    def read() -> tuple[ClusterConfig, EndpointProvider]:
        config, warnings = load_config(path, CHOICE_OF_FILE)
        for warning in warnings:
            log.warning("configuration_warning", message=warning)
        properties = config.endpoint_properties
        return config, open_provider(config.endpoint_provider, environment.cluster_id, config_dir, properties)

    config, endpoints = read()
    lower_priority(config)
    return Agent(environment, config, endpoints, http_address, read)


def main() -> None:
    """Run the command; errors that the operator must act on are one message and a non-zero exit, without traceback."""
    code = _run()
    sys.stdout.flush()
    sys.stderr.flush()
    # Not `sys.exit`: that would wait for an upload that was interrupted.
    os._exit(code)


def _run() -> int:
    try:
        app()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except OperatorError as error:
        print(f"ts-uploader: {error}", file=sys.stderr)  # noqa: T201  (the command's own voice)
        return EXIT_REFUSED
    except TransientError as error:
        print(f"ts-uploader: {error}; start it again when that is resolved", file=sys.stderr)  # noqa: T201
        return EXIT_TRY_AGAIN
    except Exception:
        log.exception("internal_error")
        return EXIT_BROKEN
    return 0


if __name__ == "__main__":
    main()
