"""The selection of requests by the rules of the S3 proxy, and its hooks."""

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from botocore.exceptions import ClientError, HTTPClientError

from dev.local.proxy.actions import Answer
from dev.local.proxy.s3 import DropRequest, Request, Rule, S3FaultProxy
from dev.local.stores.s3 import S3Server
from tests.proxy.conftest import ClientOf
from tests.proxy.objects import BUCKET, body, error_of, stored

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

# Selection of requests


def test_rules_choose_by_method_key_and_headers_and_count(proxy: S3FaultProxy, through: "S3Client") -> None:
    """A rule fires only for the second and third conditional put of a log; the journal names the requests."""
    refuse = Answer(503, "SlowDown")
    conditional = Rule(
        refuse,
        methods={"PUT"},
        target=r"\.log$",
        when=lambda request: "if-none-match" in request.headers,
        times=2,
        skip=1,
    )
    proxy.script(conditional)
    outcomes = []
    for number in range(5):
        through.put_object(Bucket=BUCKET, Key=f"rules/{number}.index", Body=b"x", IfNoneMatch="*")
        through.put_object(Bucket=BUCKET, Key="rules/unconditional.log", Body=b"x")
        try:
            through.put_object(Bucket=BUCKET, Key=f"rules/{number}.log", Body=b"x", IfNoneMatch="*")
            outcomes.append(True)
        except ClientError:
            outcomes.append(False)
    assert outcomes == [True, False, False, True, True]
    assert refuse.fired == 2
    hit = [request.path for request in proxy.requests() if request.faults]
    assert hit == [f"/{BUCKET}/rules/1.log", f"/{BUCKET}/rules/2.log"]


def test_the_first_rule_that_is_not_used_up_decides(proxy: S3FaultProxy, through: "S3Client") -> None:
    """Rules that are added together form a sequence."""
    proxy.script(Rule(Answer(503, "SlowDown")), Rule(Answer(500, "InternalError")))
    seen = []
    for _ in range(2):
        with pytest.raises(ClientError) as refused:
            through.list_buckets()
        seen.append(error_of(refused)[1])
    through.list_buckets()
    assert seen == ["SlowDown", "InternalError"]


# Hooks, and their use in a crash matrix


def test_hooks_run_directly_before_and_after_the_server_acts(
    proxy: S3FaultProxy, through: "S3Client", direct: "S3Client"
) -> None:
    """Before, the object does not exist; after, it does, and the client has no response yet."""
    seen: list[tuple[str, int | None, bool]] = []

    def note(when: str, request: Request) -> None:
        seen.append((when, request.server_status, stored(direct, "hooked") is not None))
        assert request.status is None

    proxy.before(lambda request: note("before", request))
    proxy.after(lambda request: note("after", request))
    through.put_object(Bucket=BUCKET, Key="hooked", Body=body())
    assert seen == [("before", None, False), ("after", 200, True)]


PUTS_TWICE = f"""
import io, sys, boto3
client = boto3.client("s3")
for number in (1, 2):
    client.put_object(Bucket="{BUCKET}", Key=f"{{sys.argv[1]}}/{{number}}", Body=io.BytesIO(b"x" * 300_000))
"""


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_client_is_killed_exactly_around_a_put(
    proxy: S3FaultProxy, direct: "S3Client", through: "S3Client", moment: str
) -> None:
    """SIGKILL before its second put leaves one object, SIGKILL after it two; the proxy continues."""
    environment = {**os.environ, **proxy.environment()}
    with subprocess.Popen([sys.executable, "-c", PUTS_TWICE, moment], env=environment) as process:

        def kill(request: Request) -> None:
            if request.path.endswith("/2"):
                process.kill()
                process.wait()
                if moment == "before":
                    raise DropRequest

        (proxy.before if moment == "before" else proxy.after)(kill)
        assert process.wait(30) == -signal.SIGKILL
    last = proxy.wait_for_request(lambda request: request.path.endswith("/2") and request.finished is not None)
    assert last.server_status == (None if moment == "before" else 200)
    assert last.faults == (("DropRequest",) if moment == "before" else ())
    listed = direct.list_objects_v2(Bucket=BUCKET, Prefix=f"{moment}/")["Contents"]
    assert [entry["Key"] for entry in listed] == [f"{moment}/1", f"{moment}/2"][: 1 if moment == "before" else 2]
    through.list_buckets()


def test_what_a_hook_raises_is_not_lost(s3: S3Server, client_of: ClientOf) -> None:
    """The exception breaks that request, and `close` raises it."""
    proxy = S3FaultProxy(s3)

    def fail(request: Request) -> None:
        raise LookupError(f"no plan for {request.method}")

    proxy.before(fail)
    with pytest.raises(HTTPClientError):
        client_of(proxy.endpoint).list_buckets()
    proxy.clear()
    client_of(proxy.endpoint).list_buckets()
    with pytest.raises(LookupError, match="no plan for GET"):
        proxy.close()
    proxy.close()
