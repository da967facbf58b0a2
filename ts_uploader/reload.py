"""The configuration read again while the agent runs (SIGHUP): what takes effect, and what waits for a restart.

A key takes effect where its description in `ts_common.config` says `changeable`; the agent does what each of them asks.
"""

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from ts_common.config import ClusterConfig, is_changeable
from ts_common.errors import ConfigurationError

log = structlog.get_logger()

Reread = Callable[[], ClusterConfig]


@dataclass(frozen=True, slots=True)
class Difference:
    """What a file says otherwise than the running configuration.

    Attributes:
        config: the running one, with what takes effect.
        changed: keys that take effect.
        waiting: keys that differ and need a restart.
    """

    config: ClusterConfig
    changed: tuple[str, ...]
    waiting: tuple[str, ...]


def difference(running: ClusterConfig, reread: ClusterConfig) -> Difference:
    """What of a configuration that was read again takes effect."""
    changed: dict[str, object] = {}
    waiting = []
    for name, info in ClusterConfig.model_fields.items():
        if getattr(running, name) != getattr(reread, name):
            if is_changeable(name):
                changed[name] = getattr(reread, name)
            else:
                waiting.append(str(info.alias))
    aliases = tuple(str(ClusterConfig.model_fields[name].alias) for name in changed)
    return Difference(running.model_copy(update=changed), aliases, tuple(waiting))


def reload(running: ClusterConfig, reread: Reread) -> ClusterConfig:
    """Read the file again and log what becomes of it.

    Returns:
        what the agent runs with from now on: as before where the file has errors, all of which are logged.
    """
    try:
        found = difference(running, reread())
    except ConfigurationError as error:
        log.error("configuration not taken; nothing changed", source=error.source, problems=list(error.problems))
        return running
    if found.waiting:
        log.warning("configuration differs in keys that need a restart", keys=list(found.waiting))
    log.info("configuration read again", changed=list(found.changed))
    return found.config
