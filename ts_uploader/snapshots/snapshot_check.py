"""Check for `ts-uploader check` that snapshots are possible: the connection, and the rights of this identity."""

from ts_common.config.cluster_config import ClusterConfig
from ts_common.errors import ConfigurationError, TieredStorageError, TransientError
from ts_uploader.environment import Environment
from ts_uploader.findings import Finding, hint, ok, unanswered, warning
from ts_uploader.leadership.broker_settings import security_of_broker
from ts_uploader.snapshots.cluster_reader import lacking
from ts_uploader.snapshots.snapshot_writer import OFF

_ABOUT = "metadata snapshots"


def snapshot_findings(environment: Environment, config: ClusterConfig) -> list[Finding]:
    """Return whether snapshots are possible, and each right that this identity lacks; writes nothing."""
    if not config.metadata_snapshots:
        return [hint(_ABOUT, "switched off by ts.segment.uploader.metadata.snapshots")]
    try:
        security = security_of_broker(environment, config)
    except ConfigurationError as error:
        found, _, way_out = OFF.partition("; ")
        return [warning(_ABOUT, f"{found}: {'; '.join(error.problems)}", way_out)]
    try:
        lacks = lacking(security)
    except TransientError as away:
        return [unanswered(_ABOUT, str(away))]
    except TieredStorageError as refused:
        return [warning(_ABOUT, f"they would fail: {refused}", "see docs/deploy.md, metadata snapshots")]
    findings = [warning(_ABOUT, f"they would lack {what}", f"allow this identity {right}") for right, what in lacks]
    return findings or [ok(_ABOUT, "this identity may read all that they contain")]
