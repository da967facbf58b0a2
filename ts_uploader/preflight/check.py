"""Runs `ts-uploader check`: all checks that are possible before an agent runs. Read `check` first.

A check that fails does not stop the others. Without the broker's file log dirs and cluster are unknown, without the
cluster's file the stores; everything else is still checked.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from ts_common.archive.object_keys import ClusterKeys
from ts_common.config.cluster_config import ClusterConfig, load_config
from ts_common.endpoints.provider import EndpointProvider, open_provider
from ts_common.errors import ConfigurationError, TieredStorageError, TransientError
from ts_uploader.environment import CHOICE_OF_FILE, Environment
from ts_uploader.findings import Finding, error, ok, unanswered, warning
from ts_uploader.leadership.factory import open_source
from ts_uploader.log_dirs.directory_scan import partition_directories
from ts_uploader.preflight.host_check import Limits, host_findings
from ts_uploader.preflight.tail_check import tail_findings
from ts_uploader.snapshots.snapshot_check import snapshot_findings
from ts_uploader.stores.topic_stores import Stores


def check(load_environment: Callable[[], Environment], config_dir: Path, cluster_id: str | None) -> list[Finding]:
    """Return the findings for an agent with these arguments; ships nothing.

    Args:
        load_environment: returns the broker's environment.
        config_dir: contains `<clusterId>.properties`.
        cluster_id: the one on the command line, for a broker's file that has errors.
    """
    environment, findings = _environment(load_environment)
    cluster = environment.cluster_id if environment else cluster_id
    config: ClusterConfig | None = None
    endpoints: EndpointProvider | None = None
    if cluster is not None:
        config, endpoints, of_config = _configuration(config_dir, cluster)
        findings += of_config
    if environment is not None:
        findings += _host(environment, config, endpoints)
    if config is not None and environment is not None:
        findings += _leadership(environment, config)
        findings += snapshot_findings(environment, config)
        findings += tail_findings(environment, config, _topics(environment, config))
    if config is not None and endpoints is not None and cluster is not None:
        stores = Stores(endpoints, config)
        try:
            findings += stores.findings(ClusterKeys(cluster, config.entropy_bits))
        finally:
            stores.close()
    return findings


def _environment(load: Callable[[], Environment]) -> tuple[Environment | None, list[Finding]]:
    try:
        environment = load()
    except ConfigurationError as refused:
        return None, [error(refused.source, problem) for problem in refused.problems]
    what = f"broker {environment.broker_id} of cluster {environment.cluster_id}"
    return environment, [ok("the broker's file", what)]


def _configuration(
    config_dir: Path, cluster: str
) -> tuple[ClusterConfig | None, EndpointProvider | None, list[Finding]]:
    path = config_dir / f"{cluster}.properties"
    try:
        config, warnings = load_config(path, CHOICE_OF_FILE)
    except ConfigurationError as refused:
        return None, None, [error(refused.source, problem) for problem in refused.problems]
    findings = [warning(str(path), text, "remove the key once no Java uploader reads this file") for text in warnings]
    try:
        endpoints = open_provider(config.endpoint_provider, cluster, config_dir, config.endpoint_properties)
    except ConfigurationError as refused:
        return config, None, [*findings, *(error(refused.source, problem) for problem in refused.problems)]
    return config, endpoints, [*findings, ok(str(path), "read without errors")]


def _host(environment: Environment, config: ClusterConfig | None, endpoints: EndpointProvider | None) -> list[Finding]:
    stores = 1 if endpoints is None else len(endpoints.endpoints())
    findings = host_findings(environment, config, stores, Limits.here())
    if config is None or endpoints is None:
        return findings
    homeless = []
    for topic in sorted(_topics(environment, config)):
        try:
            endpoints.endpoint(topic)
        except ConfigurationError as refused:
            homeless.append(error(refused.source, "; ".join(refused.problems)))
    return findings + homeless


def _leadership(environment: Environment, config: ClusterConfig) -> list[Finding]:
    try:
        source = open_source(environment, config, lambda _: None)
        return source.examine(_topics(environment, config))
    except ConfigurationError as refused:
        return [error(refused.source, problem) for problem in refused.problems]
    except TransientError as away:
        return [unanswered("leadership", str(away))]
    except TieredStorageError as refused:
        return [error("leadership", str(refused))]


_CONTROLLERS: Final = "__cluster_metadata"


def _topics(environment: Environment, config: ClusterConfig) -> frozenset[str]:
    """Return the topics that have a directory here and are shipped."""
    found = set()
    for log_dir in environment.log_dirs:
        try:
            found |= {partition.topic for partition, _ in partition_directories(log_dir)}
        except OSError:
            continue  # `host_findings` reports it
    # The log of the KRaft controllers is no topic that a broker leads: no agent ships it.
    return frozenset(topic for topic in found - {_CONTROLLERS} if config.ships(topic))
