"""Commands that an operator runs on the new cluster, for what a restore does not write: ACLs, quotas, SCRAM users."""

from collections.abc import Iterator, Mapping
from shlex import quote
from typing import Final

from ts_common.archive.snapshots import Acl, ClusterSnapshot, Quota, User
from tsctl.snapshots import limit_text

_BOOTSTRAP: Final = "--bootstrap-server BROKERS"
_RESOURCES: Final = {
    "TOPIC": "--topic",
    "GROUP": "--group",
    "TRANSACTIONAL_ID": "--transactional-id",
    "DELEGATION_TOKEN": "--delegation-token",
    "USER": "--user-principal",
}
_ENTITIES: Final = {"user": "users", "client-id": "clients", "ip": "ips"}


def commands_of(snapshot: ClusterSnapshot) -> Iterator[str]:
    """Yield the commands of Kafka's own tools, one line each; a password is a placeholder.

    Args:
        snapshot: what it lacks has no commands.
    """
    for user in snapshot.users or ():
        yield from _user(user)
    for acl in snapshot.acls or ():
        yield _acl(acl)
    for quota in snapshot.quotas or ():
        yield _quota(quota)
    for broker, found in snapshot.brokers.items():
        if found.configs:
            entity = "--entity-default" if broker == "default" else f"--entity-name {broker}"
            yield _alter(f"--entity-type brokers {entity}", found.configs)


def _user(user: User) -> Iterator[str]:
    for mechanism, iterations in user.mechanisms.items():
        value = f"{mechanism}=[iterations={iterations},password=PASSWORD]"
        entity = f"--entity-type users --entity-name {quote(user.name)}"
        yield f"kafka-configs.sh {_BOOTSTRAP} --alter {entity} --add-config {quote(value)}"


def _acl(acl: Acl) -> str:
    if acl.resource_type not in {"CLUSTER", *_RESOURCES}:  # of a later Kafka
        return f"# no command for {acl!r}"
    who = "--allow" if acl.permission == "ALLOW" else "--deny"
    what = "--cluster" if acl.resource_type == "CLUSTER" else f"{_RESOURCES[acl.resource_type]} {quote(acl.name)}"
    return " ".join(
        (
            f"kafka-acls.sh {_BOOTSTRAP} --add",
            f"{who}-principal {quote(acl.principal)} {who}-host {quote(acl.host)}",
            f"--operation {quote(acl.operation.title().replace('_', ''))} {what}",
            f"--resource-pattern-type {quote(acl.pattern.lower())}",
        )
    )


def _quota(quota: Quota) -> str:
    entities = (
        f"--entity-type {quote(_ENTITIES.get(kind, kind))} "
        + ("--entity-default" if name is None else f"--entity-name {quote(name)}")
        for kind, name in quota.entity.items()
    )
    return _alter(
        " ".join(entities),
        {name: limit_text(limit) for name, limit in quota.limits.items()},
    )


def _alter(entity: str, configurations: Mapping[str, str]) -> str:
    bracketed = {name: f"[{value}]" if "," in value else value for name, value in configurations.items()}
    values = ",".join(f"{name}={value}" for name, value in bracketed.items())
    return f"kafka-configs.sh {_BOOTSTRAP} --alter {entity} --add-config {quote(values)}"
