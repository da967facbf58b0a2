"""Check that the local broker answers, is the one of its file, and lets this identity read who leads."""

from collections.abc import Mapping, Set
from itertools import islice

from ts_common.store.retry import check_policy
from ts_common.wording import some
from ts_uploader.environment import Environment
from ts_uploader.findings import Finding, error, ok, unanswered, warning
from ts_uploader.leadership.kraft.broker import AnsweredByAnother, Broker, BrokerAway, Denied, NotAvailable

_MOST_TOPICS = 200  # one request each
_NAMED = 3  # topics in a finding; the rest is counted
_CLOSE_SECONDS = 2.0


def kraft_findings(client: Broker, environment: Environment, topics: Set[str]) -> list[Finding]:
    """Return the findings, and close the client."""
    about = f"broker {environment.broker_id} at {client.bootstrap}"
    try:
        findings = _settings(client, about)
        return findings + _topics(client, topics, about)
    except BrokerAway as away:
        what = f"no answer as broker {environment.broker_id}: {away}"
        return [unanswered(about, f"{what}; the address and the id are from its file")]
    finally:
        client.close(_CLOSE_SECONDS)


def _settings(client: Broker, about: str) -> list[Finding]:
    if client.broker_settings() is None:
        what = "denies this identity the broker's dynamic settings; the settings of its file are used"
        return [warning(about, what, "allow it DESCRIBE_CONFIGS on the cluster")]
    return [ok(about, "reached, and returns its settings")]


def _topics(client: Broker, topics: Set[str], about: str) -> list[Finding]:
    denied, absent, unknown = [], [], []
    for topic in islice(sorted(topics), _MOST_TOPICS):
        try:
            if _leaders(client, topic) is None:
                absent.append(topic)
        except Denied:
            denied.append(topic)
        except (NotAvailable, AnsweredByAnother):
            unknown.append(topic)
    findings = []
    if denied:
        what = f"denies this identity who leads {some(denied, _NAMED)}: the agent would not ship these"
        findings.append(
            error(about, what, "allow it DESCRIBE on the topics (and DESCRIBE_CONFIGS, for their retention)")
        )
    if absent:
        what = f"has no topic {some(absent, _NAMED)}, but its log dirs do"
        way = "deleted topics soon leave the disk; many mean another cluster's broker, or no right to DESCRIBE"
        findings.append(warning(about, what, way))
    if unknown:
        findings.append(unanswered(about, f"returns no leader now for {some(unknown, _NAMED)}"))
    if topics and not findings:
        findings.append(ok(about, "returns who leads the topics in its log dirs"))
    return findings


def _leaders(client: Broker, topic: str) -> Mapping[int, int] | None:
    # See `librdkafka_client`: the broker that was last used, to the second, receives the next request.
    policy = check_policy(AnsweredByAnother, client.broker_settings)
    return policy(client.leaders, topic)
