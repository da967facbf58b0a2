"""Each fault of the S3 proxy, with a real client and a real server."""

import http.client
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError, HTTPClientError, ReadTimeoutError, ResponseStreamingError

from dev.local.proxy.actions import (
    Action,
    Answer,
    CutAfter,
    CutBefore,
    Delay,
    Hold,
    LandLate,
    SwallowAnswer,
    TruncateAnswer,
)
from dev.local.proxy.rules import Throttle
from dev.local.proxy.s3 import Rule, S3FaultProxy
from dev.local.stores.s3 import S3Server
from dev.local.waiting import wait_for
from tests.proxy.conftest import ClientOf
from tests.proxy.objects import BUCKET, CONTENT, body, error_of, stored
from ts_common.errors import OutcomeUnknown
from ts_common.store.contract import IfAbsent
from ts_common.store.factory import open_store

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


@contextmanager
def in_background(client: "S3Client", key: str, **arguments: Any) -> Iterator["Future[Any]"]:
    """Run a put in another thread."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(client.put_object, Bucket=BUCKET, Key=key, Body=body(), **arguments)


# Before the server


@pytest.mark.parametrize("action", [CutBefore(), Delay(0.01, CutBefore())], ids=repr)
def test_cut_before_keeps_the_request_from_the_server(
    proxy: S3FaultProxy, through: "S3Client", direct: "S3Client", action: Action
) -> None:
    """The client's connection breaks, the store receives nothing, and the next attempt succeeds."""
    proxy.script(Rule(action, methods={"PUT"}))
    with pytest.raises(HTTPClientError):
        through.put_object(Bucket=BUCKET, Key="cut-before", Body=body())
    cut = proxy.requests()[0]
    assert (cut.server_status, cut.status, cut.forwarded, cut.faults[-1]) == (None, None, 0, "CutBefore()")
    assert cut.faults[0] == repr(action)
    assert action.fired == 1
    assert stored(direct, "cut-before") is None
    through.put_object(Bucket=BUCKET, Key="cut-before", Body=body())
    assert stored(direct, "cut-before") == CONTENT
    direct.delete_object(Bucket=BUCKET, Key="cut-before")


def test_a_delayed_request_lets_others_pass_and_ends_with_the_proxy(
    s3: S3Server, client_of: ClientOf, direct: "S3Client"
) -> None:
    """A request that is delayed when the proxy is closed never reaches the server."""
    with S3FaultProxy(s3) as proxy:
        delay = Delay(3600)
        proxy.script(Rule(delay, target="/delayed$"))
        client = client_of(proxy.endpoint)
        with in_background(client, "delayed") as put:
            wait_for(lambda: delay.fired == 1, "the put to be delayed")
            client.put_object(Bucket=BUCKET, Key="beside", Body=body())
            assert not put.done()
            proxy.close()
            with pytest.raises(HTTPClientError):
                put.result()
    assert stored(direct, "delayed") is None
    assert proxy.requests()[0].broken == "proxy: closed while a request was delayed"


def test_a_held_request_continues_when_it_is_released(
    proxy: S3FaultProxy, through: "S3Client", direct: "S3Client"
) -> None:
    """The store has nothing before the release and everything after it, and the client receives a response."""
    hold = Hold()
    proxy.script(Rule(hold, methods={"PUT"}))
    with in_background(through, "held") as put:
        wait_for(lambda: hold.fired == 1, "the put to be held")
        assert stored(direct, "held") is None
        assert not put.done()
        hold.release()
        assert put.result()["ResponseMetadata"]["HTTPStatusCode"] == 200
    assert stored(direct, "held") == CONTENT


def test_cut_after_breaks_off_within_the_body(proxy: S3FaultProxy, through: "S3Client", direct: "S3Client") -> None:
    """The server receives exactly that number of bytes, and stores none."""
    cut = CutAfter(300_000)
    proxy.script(Rule(cut, methods={"PUT"}))
    with pytest.raises(HTTPClientError):
        through.put_object(Bucket=BUCKET, Key="cut-after", Body=body())
    assert cut.fired == 1
    request = proxy.requests()[0]
    assert (request.forwarded, request.server_status, request.faults) == (300_000, None, ("CutAfter(300000)",))
    through.list_buckets()
    assert stored(direct, "cut-after") is None


# In place of the server


@pytest.mark.parametrize(("status", "code"), [(503, "SlowDown"), (500, "InternalError"), (403, "ExpiredToken")])
def test_an_answer_of_our_own_is_an_error_of_s3(
    proxy: S3FaultProxy, through: "S3Client", direct: "S3Client", status: int, code: str
) -> None:
    """Code and message arrive for a streamed, a plain and an empty body; the connection can be used again."""
    refuse = Answer(status, code, "a <message> & more")
    proxy.script(Rule(refuse, target="/refused", times=None))
    with pytest.raises(ClientError, match="a <message> & more") as streamed:
        through.put_object(Bucket=BUCKET, Key="refused", Body=body())
    with pytest.raises(ClientError, match="a <message> & more") as got:
        through.get_object(Bucket=BUCKET, Key="refused")
    with pytest.raises(ClientError) as headed:
        through.head_object(Bucket=BUCKET, Key="refused")
    assert error_of(streamed) == error_of(got) == (status, code)
    assert error_of(headed) == (status, str(status))
    assert refuse.fired == 3
    through.list_buckets()
    assert [request.status for request in proxy.requests()] == [status] * 3 + [200]
    assert [request.server_status for request in proxy.requests()] == [None] * 3 + [200]
    assert stored(direct, "refused") is None


def test_a_refused_body_without_an_announcement_is_read_to_its_end(proxy: S3FaultProxy, through: "S3Client") -> None:
    """A client without `Expect: 100-continue` reads the response, and its connection stays open."""
    proxy.script(Rule(Answer(503, "SlowDown")))
    signed = through.generate_presigned_url("put_object", Params={"Bucket": BUCKET, "Key": "unannounced"})
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port)
    for expected in (503, 200):
        connection.request("PUT", signed.removeprefix(proxy.endpoint), CONTENT)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == expected
        assert not answer.will_close
    connection.close()


def test_a_throttle_refuses_requests_that_arrive_too_fast(proxy: S3FaultProxy, through: "S3Client") -> None:
    """The burst passes, other requests are throttled and counted, and `clear` ends the throttle."""
    slow_down = proxy.throttle(0, burst=3)
    for _ in range(3):
        through.list_buckets()
    for _ in range(2):
        with pytest.raises(ClientError) as refused:
            through.list_buckets()
        assert error_of(refused) == (503, "SlowDown")
    assert slow_down.fired == 2
    proxy.clear()
    through.list_buckets()
    assert slow_down.fired == 2


def test_a_throttle_admits_at_its_rate() -> None:
    """It admits two per second, and three at once after a pause."""
    throttle = Throttle(rate=2, burst=3, tokens=3, at=0)
    assert [throttle.admits(now) for now in (0, 0, 0, 0, 0.4, 0.6, 0.9, 1.1)] == [
        *(True, True, True, False),
        *(False, True, False, True),
    ]
    assert [throttle.admits(60) for _ in range(4)] == [True, True, True, False]


# After the server


def test_a_truncated_answer_ends_before_its_length(proxy: S3FaultProxy, through: "S3Client") -> None:
    """The client reads that number of bytes of the real object, then finds that some are missing."""
    through.put_object(Bucket=BUCKET, Key="truncated", Body=body())
    truncate = TruncateAnswer(1000)
    proxy.script(Rule(truncate, methods={"GET"}))
    answer = through.get_object(Bucket=BUCKET, Key="truncated")
    assert answer["ContentLength"] == len(CONTENT)
    with closing(answer["Body"]) as stream:
        assert stream.read(1000) == CONTENT[:1000]
        with pytest.raises(ResponseStreamingError, match="499000 more expected"):
            stream.read()
    assert truncate.fired == 1
    with through.get_object(Bucket=BUCKET, Key="truncated")["Body"] as whole:
        assert whole.read() == CONTENT


def test_a_swallowed_answer_leaves_the_object_behind(
    proxy: S3FaultProxy, through: "S3Client", direct: "S3Client"
) -> None:
    """The client's connection breaks, and the store has the object."""
    swallow = SwallowAnswer()
    proxy.script(Rule(swallow, methods={"PUT"}))
    with pytest.raises(HTTPClientError):
        through.put_object(Bucket=BUCKET, Key="swallowed", Body=body())
    assert swallow.fired == 1
    assert (proxy.requests()[0].server_status, proxy.requests()[0].status) == (200, None)
    assert stored(direct, "swallowed") == CONTENT


def test_our_driver_calls_a_swallowed_answer_an_unknown_outcome(
    proxy: S3FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent's own S3 driver sends once, and the store has the object."""
    for name, value in proxy.environment().items():
        monkeypatch.setenv(name, value)
    proxy.script(Rule(SwallowAnswer(), methods={"PUT"}))
    with open_store(f"s3://{BUCKET}/driver") as store:
        with pytest.raises(OutcomeUnknown):
            store.put("a", CONTENT, condition=IfAbsent())
        assert store.get("a")[0] == CONTENT
    assert [request.method for request in proxy.requests()] == ["PUT", "GET"]


@pytest.mark.parametrize("overtaken", [False, True])
def test_a_put_lands_after_its_client_gave_up(
    proxy: S3FaultProxy, through: "S3Client", direct: "S3Client", overtaken: bool
) -> None:
    """The server checks its condition on arrival: it rejects it if another client has written since."""
    key = f"late-{overtaken}"
    late = LandLate()
    proxy.script(Rule(late, methods={"PUT"}))
    with pytest.raises(HTTPClientError):
        through.put_object(Bucket=BUCKET, Key=key, Body=body(), IfNoneMatch="*")
    wait_for(lambda: late.fired == 1, "the whole request at the proxy")
    assert stored(direct, key) is None
    if overtaken:
        direct.put_object(Bucket=BUCKET, Key=key, Body=b"another's")
    assert not late.outcomes
    late.release()
    landed = proxy.wait_for_request(lambda request: request.finished is not None)
    assert (landed.server_status, landed.status) == (412 if overtaken else 200, None)
    assert list(late.outcomes) == [landed.server_status]
    assert stored(direct, key) == (b"another's" if overtaken else CONTENT)


def test_a_put_that_timed_out_lands_late(proxy: S3FaultProxy, client_of: ClientOf, direct: "S3Client") -> None:
    """The server is silent for longer than the client's timeout, and the client never receives a response."""
    late = LandLate(silent=True)
    proxy.script(Rule(late, methods={"PUT"}))
    with pytest.raises(ReadTimeoutError):
        client_of(proxy.endpoint, read_timeout=0.2).put_object(Bucket=BUCKET, Key="timed-out", Body=body())
    assert late.fired == 1
    assert stored(direct, "timed-out") is None
    late.release()
    wait_for(lambda: late.outcomes == (200,), "the put to land")
    assert stored(direct, "timed-out") == CONTENT
