"""FindCoordinator and DescribeCluster: which process a client connects to."""

from typing import Final

from kio.schema.errors import ErrorCode

from ts_endpoint.contract import Handler, Permissions, Session
from ts_endpoint.peers.cluster import Peers
from ts_endpoint.protocol.replies import Values
from ts_endpoint.protocol.requests import Request

_GROUP: Final = 0  # key type
_BROKERS: Final = 1  # endpoint type
# INVALID_REQUEST and not COORDINATOR_NOT_AVAILABLE: a client repeats the second for ever.
_NO_TRANSACTIONS: Final = "this endpoint serves an archive: it has no transactions and no share groups, only groups"
_FIRST_WITH_KEYS: Final = 4  # version with several keys
_NONE: Final = "NONE"  # what a broker writes as message of no error, if a reply has one coordinator


def find_coordinator(peers: Peers, permissions: Permissions) -> Handler:
    """Return the handler of FindCoordinator.

    Args:
        permissions: a user gets the coordinators of groups that it may use.
    """

    async def handle(request: Request, session: Session) -> Values:
        has_keys = request.version >= _FIRST_WITH_KEYS
        keys = request.body.coordinator_keys if has_keys else (request.body.key,)
        key_type = getattr(request.body, "key_type", _GROUP)  # version 0 has groups only
        found = [_coordinator(peers, permissions, session, key_type, key) for key in keys]
        return {"coordinators": found} if has_keys else _alone(found[0])

    return handle


def _alone(found: Values) -> Values:
    is_found = found["error_code"] is ErrorCode.none
    return {**found, "error_message": _NONE} if is_found else found


def _coordinator(peers: Peers, permissions: Permissions, session: Session, key_type: int, key: str) -> Values:
    nothing = {"key": key, "node_id": -1, "host": "", "port": -1, "error_message": ""}
    if key_type != _GROUP:
        return {**nothing, "error_code": ErrorCode.invalid_request, "error_message": _NO_TRANSACTIONS}
    if not permissions.may_use(session.user, key):
        return {**nothing, "error_code": ErrorCode.group_authorization_failed}
    node_id, host, port = peers.broker(peers.coordinator_of(key))
    return {**nothing, "node_id": node_id, "host": host, "port": port, "error_code": ErrorCode.none}


def describe_cluster(peers: Peers) -> Handler:
    """Return the handler of DescribeCluster."""

    async def handle(request: Request, session: Session) -> Values:
        del session
        if getattr(request.body, "endpoint_type", _BROKERS) != _BROKERS:
            return {
                "error_code": ErrorCode.unsupported_endpoint_type,
                "error_message": "this endpoint has no controllers",
                "cluster_id": peers.cluster,
                "brokers": [],
            }
        return {
            "error_code": ErrorCode.none,
            "cluster_id": peers.cluster,
            "controller_id": peers.controller(),
            "brokers": [{"broker_id": node_id, "host": host, "port": port} for node_id, host, port in peers.brokers()],
        }

    return handle
