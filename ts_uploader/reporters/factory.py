"""Opens the reporter that the configuration names."""

import re

from ts_common.config.cluster_config import ClusterConfig
from ts_common.config.plugins import load_class
from ts_uploader.environment import Environment
from ts_uploader.reporters.contract import MetricsReporter, ReporterConfig
from ts_uploader.reporters.graphite import GraphiteReporter
from ts_uploader.reporters.statsd import StatsdReporter

KEY = "metrics.reporter.class"
_BUILT_IN: dict[str, type[MetricsReporter]] = {"graphite": GraphiteReporter, "statsd": StatsdReporter}


def open_reporter(config: ClusterConfig, environment: Environment) -> MetricsReporter | None:
    """Return the configured reporter; None without one.

    Raises:
        ConfigurationError: the class does not exist, or it rejects its options.
    """
    name = config.reporter
    if name is None:
        return None
    kind = _BUILT_IN.get(name)
    if kind is None:
        kind = load_class(name, MetricsReporter, KEY)  # type: ignore[type-abstract]
    prefix = config.reporter_prefix
    if prefix is None:  # dots separate the levels of a name
        prefix = f"{re.sub(r'[^A-Za-z0-9_-]', '_', environment.cluster_id)}.{environment.broker_id}"
    return kind(
        ReporterConfig(
            config.reporter_host, config.reporter_port, prefix, config.reporter_tags, config.reporter_options
        )
    )
