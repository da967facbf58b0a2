"""Reads the configuration again while the agent runs (SIGHUP): some keys apply at once, others need a restart.

A key applies at once if its description in `ts_common.config.cluster_config` has `changeable`. The location of topics
always needs a restart, whether a key, the endpoints file or a custom provider changes it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog

from ts_common.config import zookeeper_options
from ts_common.config.cluster_config import KAFKA_CLIENT, REPORTER, TAIL_GROUP, ClusterConfig, is_changeable
from ts_common.endpoints.provider import EndpointProvider
from ts_common.errors import ConfigurationError
from ts_common.store.options import Endpoint

log = structlog.get_logger()

Reread = Callable[[], tuple[ClusterConfig, EndpointProvider]]
_KEYS_BELOW = {
    "storage": "",
    "kafka_client": KAFKA_CLIENT,
    "tail_groups": TAIL_GROUP,
    "reporter_options": REPORTER,
    "zookeeper": zookeeper_options.PREFIX,
}  # fields that contain keys by name, and the prefix of these keys
_UNUSED = {"java_collection"}  # fields that only other programs use


@dataclass(frozen=True, slots=True)
class Difference:
    """The differences between a file and the running configuration.

    Attributes:
        config: the running one, with the changes that apply at once.
        changed: keys that apply at once.
        waiting: keys that differ and need a restart.
    """

    config: ClusterConfig
    changed: tuple[str, ...]
    waiting: tuple[str, ...]


def difference(running: ClusterConfig, reread: ClusterConfig) -> Difference:
    """Return the differences of a configuration that was read again."""
    changed: dict[str, object] = {}
    waiting: list[str] = []
    for name, info in ClusterConfig.model_fields.items():
        old, new = getattr(running, name), getattr(reread, name)
        if old == new or name in _UNUSED:
            continue
        if is_changeable(name):
            changed[name] = new
        elif name in _KEYS_BELOW:
            differing = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
            waiting += [_KEYS_BELOW[name] + key for key in differing]
        else:
            waiting.append(str(info.alias))
    aliases = tuple(str(ClusterConfig.model_fields[name].alias) for name in changed)
    return Difference(running.model_copy(update=changed), aliases, tuple(waiting))


def reload(running: ClusterConfig, endpoints: EndpointProvider, topics: Iterable[str], reread: Reread) -> ClusterConfig:
    """Read the file again and log the differences.

    Args:
        running: the agent's current configuration.
        endpoints: the agent's current endpoints.
        reread: reads both again.

    Returns:
        The configuration from now on: the current one if the file has errors; each error is logged.
    """
    try:
        config, others = reread()
        found = difference(running, config)
        elsewhere = endpoints.endpoints() ^ others.endpoints()
        moved = sorted(topic for topic in set(topics) if _endpoint(endpoints, topic) != _endpoint(others, topic))
    except ConfigurationError as error:
        log.error(
            "configuration_rejected", message="nothing changed", source=error.source, problems=list(error.problems)
        )
        return running
    if found.waiting:
        log.warning("restart_needed", keys=list(found.waiting))
    if elsewhere or moved:
        locations = sorted({endpoint.location for endpoint in elsewhere})  # their options may contain a password
        log.warning("restart_needed", message="endpoints changed", locations=locations, topics=moved)
    log.info("configuration_reloaded", changed=list(found.changed))
    return found.config


def _endpoint(provider: EndpointProvider, topic: str) -> Endpoint | None:
    try:
        return provider.endpoint(topic)
    except ConfigurationError:  # it has no endpoint
        return None


class LiveConfig:
    """The agent's configuration; `reload` replaces it as a whole.

    Attributes:
        current: read by any thread.

    Args:
        reread: reads both again.
    """

    def __init__(self, config: ClusterConfig, endpoints: EndpointProvider, reread: Reread) -> None:
        self.current = config
        self._endpoints = endpoints
        self._reread = reread

    def reload(self, topics: Iterable[str]) -> None:
        """Read the file again; `topics` are the shipped ones."""
        self.current = reload(self.current, self._endpoints, topics, self._reread)
