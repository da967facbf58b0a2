"""The status page in a real browser: on a phone and on a desk, light and dark, with everything that can be wrong."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.browser import complaints, look, served_text
from tests.uploader.status.statuses import status_of, waiting
from ts_common.errors import AccessDenied
from ts_common.model import TopicPartition
from ts_uploader.messages.observations import Leadership
from ts_uploader.messages.results import Failed
from ts_uploader.metrics.counters import Metrics
from ts_uploader.status.http_server import HealthServer
from ts_uploader.status.page import status_page
from ts_uploader.status.snapshot import AgentStatus
from ts_uploader.tracking.blocked import Wait, WaitReason
from ts_uploader.tracking.stuck import Stuck, StuckPartitions

LONG = "StoreUnavailable: PutObject s3://archive/base/01011/prod/" + "x" * 200 + "/00000000000000000000.log: no answer"
PHONE, DESK = 390, 1280


@pytest.fixture
def troubled() -> AgentStatus:
    """A partition with a hole, one that waits with a long reason, many that are well, and an error."""
    known = dict(
        [
            *(waiting("a." + "very-long-topic-name." * 11, number) for number in range(60)),
            waiting("torn", 3, hole=True),
            waiting("waits", 9, waits_for=LONG),
        ]
    )
    status, source, errors = status_of(lambda: known)
    source.up = False
    errors.take(Failed(TopicPartition("torn", 3), 0, Leadership(1, None, 0), 0, "Ship", LONG))
    return status


@contextmanager
def served(status: AgentStatus) -> Iterator[str]:
    """Yield the URL of the page of a status."""
    server = HealthServer("127.0.0.1:0", Metrics().registry, status)
    server.start()
    try:
        yield f"http://{server.address}/"
    finally:
        server.stop()


def denied() -> AgentStatus:
    """A store that denies access, and nothing else is wrong."""
    status, *_ = status_of(lambda: dict([waiting("clicks", 3)]))
    with suppress(AccessDenied), status.sources.health.request("s3://b/p", "put", "clicks-3/5.log"):
        raise AccessDenied("PutObject: AccessDenied <b>no</b>")
    return status


@pytest.mark.parametrize(
    ("made", "headline"),
    [
        (lambda: status_of(lambda: dict([waiting("clicks", 3)]))[0], "All is well."),
        (denied, "denies access to this identity: PutObject: AccessDenied &lt;b&gt;no"),
        pytest.param(lambda: status_of()[0], "All is well.", marks=pytest.mark.full),
        pytest.param(
            lambda: status_of(lambda: dict([waiting("waits", 9, waits_for=LONG)]))[0],
            "the agent waits before it can ship",
            marks=pytest.mark.full,
        ),
    ],
    ids=["well", "denied", "leads-nothing", "waits"],
)
def test_a_browser_gets_the_page_to_its_last_line(
    made: Callable[[], AgentStatus], headline: str, tmp_path: Path
) -> None:
    """An empty piece of the template must not end the body: the page was cut off at it."""
    with served(made()) as url:
        document = served_text(url)
    assert headline in document
    assert document.index("Totals") < document.index("Work in progress") < document.index(">status.json</a>")


@pytest.mark.parametrize(("width", "dark"), [(PHONE, False), (DESK, True)], ids=["phone", "desk-dark"])
def test_the_page_fits_and_can_be_read(troubled: AgentStatus, tmp_path: Path, width: int, *, dark: bool) -> None:
    """Nothing overflows to the side, no letter is tiny, and the colours are those that the reader prefers."""
    page = b"".join(status_page(troubled)).decode()
    seen = look(page, tmp_path, width=width, dark=dark)
    assert seen["scrollWidth"] <= width
    assert seen["smallest"] >= 13
    assert seen["scripts"] == 0
    ground, ink = (sum(int(part) for part in seen[name][4:-1].split(",")) for name in ("background", "ink"))
    assert (ink > ground) is dark
    assert abs(ink - ground) > 500
    text = seen["text"]
    headings = [
        text.index(words)
        for words in ("1 partition: the broker has no segment", "Last errors", "Totals", "Partitions (")
    ]
    rows = [text.index(name, headings[-1]) for name in ("torn-3", "waits-9", "a.very-long")]
    assert headings + rows == sorted(headings + rows)
    assert "the worst 50 of 62" in text


def test_errors_that_block_nothing_appear_last(tmp_path: Path) -> None:
    """Below a green verdict an error of some minutes ago would look like trouble; no word of the table is cut."""
    status, _, errors = status_of(lambda: dict([waiting("clicks", 3)]))
    errors.take(Failed(TopicPartition("clicks", 3), 0, Leadership(1, None, 0), 0, "WriteCommit", LONG))
    page = b"".join(status_page(status)).decode()
    text = look(page, tmp_path, width=DESK)["text"]
    order = [text.index(words) for words in ("All is well.", "Totals", "Partitions (", "Earlier errors", "WriteCommit")]
    assert order == sorted(order)
    assert "Last errors" not in text
    assert "2 uploads, 1 commit" in text
    assert 'http-equiv="refresh"' in page


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_errors_of_partitions_that_no_longer_wait_appear_last(tmp_path: Path, width: int) -> None:
    """Next to unrelated trouble an error that is over would send the reader to the wrong partition."""
    wait = Wait(WaitReason.COMMIT, "the commit: no answer")
    stuck = StuckPartitions({TopicPartition("led-elsewhere", 0): Stuck(wait, 7_300.0)})
    known = dict(
        [waiting("clicks", 3), waiting("waits", 9, waits_for="a high watermark"), waiting("torn", 1, hole=True)]
    )
    status, _, errors = status_of(lambda: known, stuck=lambda: stuck)
    for partition in (("clicks", 3), ("waits", 9), ("torn", 1), ("led-elsewhere", 0), ("no-longer-led", 4)):
        errors.take(
            Failed(TopicPartition(*partition), 0, Leadership(1, None, 0), 0, "Ship", f"error of {partition[0]}")
        )
    errors.note("CheckStores", "", "error of the agent")
    page = b"".join(status_page(status)).decode()
    seen = look(page, tmp_path, width=width)
    text = seen["text"]
    assert seen["scrollWidth"] <= width
    last, totals, earlier = (text.index(words) for words in ("Last errors", "Totals", "Earlier errors"))
    for name in ("waits", "torn", "led-elsewhere"):
        assert last < text.index(f"error of {name}") < totals
    for name in ("clicks", "no-longer-led", "the agent"):
        assert text.index(f"error of {name}") > earlier
    status.note_round(0)
    status.sources.progress.bound_seconds = 0.0
    page = b"".join(status_page(status)).decode()  # the main thread does not answer: nothing shows what still waits
    assert "Earlier errors" not in page
    assert page.index("Last errors") < page.index("error of clicks")


def test_the_browser_has_nothing_to_complain_of(troubled: AgentStatus, tmp_path: Path) -> None:
    """The page's own policy allows its style, and the browser fetches nothing else."""
    with served(troubled) as url:
        assert complaints(url) == []
