"""What is counted around handlers."""

import asyncio

from kio.schema.errors import ErrorCode

from ts_endpoint.contract import Session
from ts_endpoint.protocol.replies import Records, Values
from ts_endpoint.protocol.requests import Request
from ts_endpoint.protocol.versions import Api
from ts_endpoint.status.request_counts import RequestCounts


def test_errors_are_counted_at_any_depth_and_only_fetches_are_timed() -> None:
    """A reply is passed through as it is; its records are not looked into."""
    replies: dict[Api, Values | None] = {
        Api.FETCH: {
            "error_code": ErrorCode.none,
            "responses": [
                {
                    "topic": "t",
                    "partitions": [
                        {"error_code": ErrorCode.not_leader_or_follower, "records": None},
                        {"error_code": ErrorCode.not_leader_or_follower, "records": None},
                        {"error_code": ErrorCode.none, "records": Records([memoryview(b"abc")])},
                    ],
                }
            ],
        },
        Api.HEARTBEAT: {"error_code": ErrorCode.rebalance_in_progress},
        Api.PRODUCE: None,
    }
    counts = RequestCounts()

    async def handler(request: Request, session: Session) -> Values | None:
        del session
        return replies[request.api]

    counted = counts.around(dict.fromkeys(replies, handler))

    async def ask_all() -> None:
        for api, reply in replies.items():
            assert await counted[api](Request(api, 0, 1, None, None), Session("127.0.0.1")) is reply

    asyncio.run(ask_all())
    assert counts.errors == {("FETCH", "NOT_LEADER_OR_FOLLOWER"): 2, ("HEARTBEAT", "REBALANCE_IN_PROGRESS"): 1}
    assert counts.fetches.cumulative()[-1] == ("+Inf", 1.0)
