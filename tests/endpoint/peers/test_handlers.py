"""FindCoordinator and DescribeCluster, in all versions that are served."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader

from ts_endpoint.contract import EveryonePermitted, Handler, Permissions, Session
from ts_endpoint.peers.addresses import parse_peers
from ts_endpoint.peers.cluster import Peers
from ts_endpoint.peers.handlers import describe_cluster, find_coordinator
from ts_endpoint.protocol.replies import Values, encode_reply
from ts_endpoint.protocol.requests import Request
from ts_endpoint.protocol.versions import SERVED, Api

LISTED = parse_peers("a:9092,b:9093,c:9094", 9465)
PEERS = Peers("prod", LISTED, LISTED[1])


class OnlyOwnGroups:
    """A user may use the groups that begin with its name."""

    def may_read(self, user: str | None, topic: str) -> bool:
        """Return false."""
        del user, topic
        return False

    def may_use(self, user: str | None, group: str) -> bool:
        """Return whether the group is the user's."""
        return user is not None and group.startswith(user)


def reply(handler: Handler, api: Api, version: int, **fields: Any) -> Any:
    """Return the decoded reply to a request with these fields."""
    request = Request(api, version, 7, None, SimpleNamespace(**fields))

    async def answer() -> Values | None:
        return await handler(request, Session("127.0.0.1", "ana"))

    values = asyncio.run(answer())
    assert values is not None
    frame = b"".join(encode_reply(request, values))[4:]
    schema = load_response_schema(int(api), version)
    _, used = entity_reader(schema.__header_schema__)(frame, 0)
    return entity_reader(schema)(frame, used)[0]


def asked(version: int, keys: list[str], permissions: Permissions, key_type: int = 0) -> list[Any]:
    """Return the coordinators of a FindCoordinator reply."""
    own = {"coordinator_keys": tuple(keys)} if version >= 4 else {"key": keys[0]}
    found = reply(find_coordinator(PEERS, permissions), Api.FIND_COORDINATOR, version, key_type=key_type, **own)
    return list(found.coordinators) if version >= 4 else [found]


@pytest.mark.parametrize("version", range(SERVED[Api.FIND_COORDINATOR][1] + 1))
def test_every_process_names_the_same_coordinator_for_a_group(version: int) -> None:
    """With the address that clients connect to."""
    (found,) = asked(version, ["group"], EveryonePermitted())
    owner = LISTED[PEERS.coordinator_of("group")]
    assert (found.error_code, found.node_id) == (ErrorCode.none, owner.node_id)
    assert (found.host, found.port) == (owner.address.host, owner.address.port)


@pytest.mark.parametrize("version", range(1, SERVED[Api.FIND_COORDINATOR][1] + 1))
@pytest.mark.parametrize("key_type", [1, 2], ids=["transactions", "share groups"])
def test_transactions_have_no_coordinator_and_a_client_does_not_retry(version: int, key_type: int) -> None:
    """The error is one that clients report; its message names what is missing."""
    (found,) = asked(version, ["id"], EveryonePermitted(), key_type)
    assert (found.error_code, found.node_id) == (ErrorCode.invalid_request, -1)
    assert not found.error_code.retriable
    assert "no transactions" in found.error_message


def test_a_user_finds_only_coordinators_of_groups_that_it_may_use() -> None:
    """Others in the same request are answered."""
    denied, allowed = asked(4, ["bob-1", "ana-1"], OnlyOwnGroups())
    assert (denied.key, denied.error_code, denied.node_id) == ("bob-1", ErrorCode.group_authorization_failed, -1)
    assert (allowed.key, allowed.error_code) == ("ana-1", ErrorCode.none)


@pytest.mark.parametrize("version", range(SERVED[Api.DESCRIBE_CLUSTER][1] + 1))
def test_the_cluster_has_its_name_and_all_living_processes(version: int) -> None:
    """The lowest node id is the controller, in the answer of each process."""
    found = reply(describe_cluster(PEERS), Api.DESCRIBE_CLUSTER, version, endpoint_type=1)
    assert (found.cluster_id, found.controller_id, found.error_code) == ("prod", 0, ErrorCode.none)
    assert [(each.broker_id, each.host, each.port) for each in found.brokers] == [
        (0, "a", 9092),
        (1, "b", 9093),
        (2, "c", 9094),
    ]


def test_controllers_are_not_described() -> None:
    """An admin client that bootstraps from controllers gets an error."""
    found = reply(describe_cluster(PEERS), Api.DESCRIBE_CLUSTER, 1, endpoint_type=2)
    assert (found.error_code, found.brokers) == (ErrorCode.unsupported_endpoint_type, ())
