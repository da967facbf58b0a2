"""Check for `ts-uploader check` that snapshots are possible: the connection, and the rights of this identity."""

from ts_common.config.cluster_config import ClusterConfig
from ts_common.errors import ConfigurationError, OperatorError, TransientError
from ts_uploader.environment import Environment
from ts_uploader.findings import Finding, hint, ok, unanswered, warning
from ts_uploader.snapshots.snapshot_writer import OFF, reader_of

_ABOUT = "metadata snapshots"


def snapshot_findings(environment: Environment, config: ClusterConfig) -> list[Finding]:
    """Return whether snapshots are possible, and each right that this identity lacks; writes nothing."""
    try:
        open_reader = reader_of(environment, config)
    except ConfigurationError as error:
        found, _, way_out = OFF.partition("; ")
        return [warning(_ABOUT, f"{found}: {'; '.join(error.problems)}", way_out)]
    if open_reader is None:
        return [hint(_ABOUT, "switched off by ts.segment.uploader.metadata.snapshots")]
    try:
        with open_reader() as reader:
            lacking = reader.lacking()
    except (TransientError, OperatorError) as away:
        return [unanswered(_ABOUT, f"the broker did not answer: {away}")]
    findings = [warning(_ABOUT, f"they would lack {what}", f"allow this identity {right}") for right, what in lacking]
    if reader.unread is not None:
        findings.append(
            warning(
                _ABOUT,
                f"they would lack quotas, users and the settings for all brokers: {reader.unread}",
                "mend that setting, or accept it",
            )
        )
    return findings or [ok(_ABOUT, "this identity may read all that they contain")]
