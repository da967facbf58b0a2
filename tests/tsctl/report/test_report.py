"""The report in a real browser: its charts and tables, and text from outside that stays text."""

import json
import re
import time
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from tests.browser import open_page
from tests.matrix import cases
from tests.tsctl.report.pages import bars, part_of
from tsctl.report.render import render
from tsctl.verify.coverage import Coverage
from tsctl.verify.finding_kinds import FOREIGN_OBJECT, GAP, HOLE, SEGMENT_DAMAGED
from tsctl.verify.findings import Finding

DAY = 86_400_000
BEGAN = 1_700_000_000_000


def coverage(topic: str, partition: int, *, holes: int = 0) -> Coverage:
    """Return a thousand offsets in ten days, a gap at 500, a dead tail at 700, and holes at 100, 120, ..."""
    where = f"{topic}-{partition}"
    lost = tuple((100 + 20 * number, 110 + 20 * number) for number in range(holes))
    edges = [0, *(edge for hole in lost for edge in hole), 500, 510, 1000]
    findings = (
        *(Finding(HOLE, where, "10 offsets", f"prod/{where}/", start, end) for start, end in lost),
        Finding(GAP, where, "retention took it", f"prod/{where}/gaps/500-510.json", 500, 510),
    )
    return Coverage(
        where,
        topic,
        partition,
        f"prod/{where}/",
        0,
        1000,
        segments=10,
        bytes=10_000,
        held=tuple(zip(edges[::2], edges[1::2], strict=True)),
        holes=lost,
        gaps=((500, 510),),
        dead=((700, 720),),
        bytes_by_day={f"2023-11-{14 + day}": 1000 for day in range(10)},
        times=tuple((100 * day + 100, BEGAN + day * DAY) for day in range(10)),
        findings=findings,
    )


def page_of(tmp_path: Path, coverages: list[Coverage], findings: list[Finding] | None = None) -> Path:
    page = tmp_path / "report.html"
    found = [finding for row in coverages for finding in row.findings] if findings is None else findings
    page.write_text(render("Archive of prod", coverages, found, {"cluster": "prod"}, time.time()))
    return page


# A name from outside may contain any characters.
EVIL = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">&amp;{0}"


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Open a page of two topics, with findings of each kind and names from outside."""
    row = coverage("orders", 1)
    found = (Finding(SEGMENT_DAMAGED, "orders-1", "a CRC", "key", 400), Finding(SEGMENT_DAMAGED, "orders-1", "b", "k"))
    whole = replace(coverage("</script><b>x", 0), held=((0, 1000),), gaps=(), dead=(), findings=())
    rows = [coverage("orders", 0, holes=3), replace(row, findings=(*row.findings, *found)), whole]
    findings = [finding for row in rows for finding in row.findings]
    directory = tmp_path_factory.mktemp("report")
    return open_page(page_of(directory, rows, [*findings, Finding(FOREIGN_OBJECT, EVIL, EVIL, EVIL)]))


def test_the_browser_draws_holes_gaps_dead_tails_and_damage(document: str) -> None:
    """The first topic's map has bars of each kind and colour and marks, and the table has rows of findings.

    A damaged segment is in the store, so its bar is green like any other.
    """
    assert document.count('<details class="topic"') == 2
    assert document.count('data-drawn="1"') == 4  # growth, sizes, and the maps of the first topic
    offsets, times = (part_of(document, f"{kind}-0") for kind in ("offsets", "times"))
    for chart in (offsets, times):
        assert bars(chart, "rgb(208, 0, 0)") == 3
        assert bars(chart, "rgb(224, 160, 48)") == 2
        assert bars(chart, "rgb(138, 138, 138)") == 2
        assert len(re.findall(r'<path class="point"[^>]*transform="translate', chart)) == 3 + 2
        assert len(re.findall(r'<path class="point"[^>]*fill: rgb\(180, 80, 15\)', chart)) == 2
    assert "orders-0" in offsets
    assert "orders-1" in offsets
    assert document.count('data-code="hole"') == 3
    assert document.count('data-code="gap"') == 2
    assert 'class="verdict data-loss"' in document
    assert "30 offsets in holes, 20 in recorded gaps" in document
    assert "<svg" in part_of(document, "growth")
    assert "<svg" in part_of(document, "sizes")


def test_recorded_gaps_are_not_everything(tmp_path: Path) -> None:
    """Nothing is damaged, and still the archive lacks offsets: the banner has their number, and its own colour."""
    text = page_of(tmp_path, [coverage("orders", 0), coverage("orders", 1)]).read_text()
    banner = "Nothing is damaged. The archive lacks 20 offsets, all of them in recorded gaps."
    assert f'<p id="verdict" class="verdict gaps">{banner}</p>' in text
    assert '<span class="dot gaps"></span>orders' in text
    assert "Everything is there." not in text


def test_a_whole_archive_has_everything(tmp_path: Path) -> None:
    """Without a hole and a gap."""
    row = replace(coverage("orders", 0), held=((0, 1000),), gaps=(), findings=())
    text = page_of(tmp_path, [row]).read_text()
    assert '<p id="verdict" class="verdict fine">Everything is there.</p>' in text


@pytest.mark.full
def test_an_archive_of_one_day_has_an_axis_of_days(tmp_path: Path) -> None:
    """The axis has no milliseconds, and the day's bar has a width."""
    row = replace(coverage("orders", 0), bytes_by_day={"2023-11-14": 10_000})
    chart = part_of(open_page(page_of(tmp_path, [row])), "growth")
    labels = re.findall(r'class="xtick"><text[^>]*>([^<]*)<', chart)
    assert "2023-11-14" in labels
    assert all(re.fullmatch(r"2023-11-1[345]", label) for label in labels)
    (bar,) = re.findall(r'<g class="point"><path d="M([0-9.]+),[0-9.]+V[0-9.]+H([0-9.]+)V', chart)
    assert float(bar[1]) - float(bar[0]) > 100


@pytest.mark.parametrize("width", cases([390, 1280], quick=[390]))
@pytest.mark.full
def test_records_of_one_moment_have_an_axis_of_minutes(tmp_path: Path, width: int) -> None:
    """plotly's own axis would be two milliseconds long, and bars would have no width."""
    row = replace(coverage("orders", 0), times=tuple((offset, BEGAN) for offset in range(100, 1001, 100)))
    chart = charts_of(page_of(tmp_path, [row]), tmp_path, width, "times-0")[0]
    found = labels(chart, "x")
    assert re.fullmatch(r"2[123]:[0-5][05]<br>2023-11-14", found[0])
    assert all(re.fullmatch(r"2[123]:[0-5][05]", label) for label in found[1:]), found
    assert max(widths(chart)) > 1


@pytest.mark.full
def test_an_axis_of_times_has_the_year(tmp_path: Path) -> None:
    """Over days, in the order of ISO 8601, as everywhere on the page."""
    found = labels(charts_of(page_of(tmp_path, [coverage("orders", 0)]), tmp_path, 1280, "times-0")[0], "x")
    assert all(re.fullmatch(r"2023-11-\d\d", label) for label in found), found


FEW = [Coverage(f"orders-{number}", "orders", number, f"prod/orders-{number}/", 0, 0) for number in range(4)]
for number in (1, 2):  # the first and the last have no range
    row = replace(coverage("orders", number), end=4, held=((0, 4),), gaps=(), dead=(), findings=(), bytes=2 * 10**9)
    FEW[number] = replace(row, bytes_by_day={"2023-11-14": 2 * 10**9})


@pytest.fixture(scope="module", params=cases([390, 1280], quick=[390]))
def charts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the charts of a page of four partitions, as they are drawn in a window of this width."""
    directory, identities = tmp_path_factory.mktemp("few"), ("growth", "sizes", "offsets-0", "times-0")
    drawn = charts_of(page_of(directory, FEW), directory, request.param, *identities)
    return dict(zip(identities, drawn, strict=True))


def test_an_axis_of_offsets_has_whole_offsets(charts: dict[str, str]) -> None:
    """No halves of few offsets."""
    assert labels(charts["offsets-0"], "x") == ["0", "1", "2", "3", "4"]


@pytest.mark.full
def test_an_axis_of_many_offsets_has_whole_offsets(tmp_path: Path) -> None:
    """No "1.5M": people copy offsets into commands."""
    end = 3_000_000
    row = replace(coverage("orders", 0), end=end, held=((0, end),), gaps=(), dead=(), findings=())
    (chart,) = charts_of(page_of(tmp_path, [row]), tmp_path, 1280, "offsets-0")
    assert labels(chart, "x") == ["0", "500000", "1000000", "1500000", "2000000", "2500000", "3000000"]


def test_an_axis_of_bytes_has_prefixes_of_si(charts: dict[str, str]) -> None:
    """ "2B" on an axis of bytes would be two billion."""
    for identity, axis in (("growth", "y"), ("sizes", "x")):
        found = labels(charts[identity], axis)
        assert "2G" in found
        assert not [label for label in found if "B" in label]


def test_a_partition_without_a_range_keeps_its_row(charts: dict[str, str]) -> None:
    """Also at the edges, where plotly's own axis omits it: the rows of the map are those of the table."""
    for identity in ("offsets-0", "times-0"):
        assert labels(charts[identity], "y") == [f"orders-{number}" for number in range(4)]


def test_a_page_counts_the_ranges_that_its_maps_leave_out(tmp_path: Path) -> None:
    """Only of topics with so many."""
    row = coverage("orders", 0, holes=19)
    many = replace(row, where="many-0", topic="many", held=tuple((2 * at, 2 * at + 1) for at in range(403)))
    text = page_of(tmp_path, [many, row]).read_text()
    assert text.count("longest ranges of each kind") == 1
    assert "the 400 longest ranges of each kind in each partition, without 3 shorter ranges" in text


def charts_of(page: Path, directory: Path, width: int, *identities: str) -> list[str]:
    """Return charts, as the browser draws them in a window of this width."""
    frame = directory / "frame.html"
    frame.write_text(
        f'<iframe id=page width={width} height=2000 style="border:0" src="{page.name}"></iframe><div id=drawn></div>'
        '<script>document.getElementById("page").addEventListener("load", function () {'
        f"for (const identity of {json.dumps(identities)}) {{"
        'const drawn = document.createElement("pre");'
        "drawn.textContent = this.contentDocument.getElementById(identity).outerHTML;"
        'document.getElementById("drawn").append(drawn); } });</script>'
    )
    document = open_page(frame)
    found = re.findall("<pre>(.*?)</pre>", document, re.DOTALL)
    assert len(found) == len(identities)
    return [unescape(each) for each in found]


def labels(chart: str, axis: str) -> list[str]:
    """Return the labels of an axis, from its start; of lines in a label, the break is `<br>`."""
    return [unescape(found) for found in re.findall(rf'class="{axis}tick"><text[^>]*data-unformatted="([^"]*)"', chart)]


def widths(chart: str) -> list[float]:
    """Return the widths of the bars, in pixels."""
    ends = re.findall(r'<g class="point"><path d="M([0-9.]+),[0-9.]+V[0-9.]+H([0-9.]+)V', chart)
    return [abs(float(right) - float(left)) for left, right in ends]


@pytest.mark.full  # in a wide window; in a narrow one below
def test_the_buttons_of_a_chart_are_above_it(tmp_path: Path) -> None:
    """Otherwise they would cover the first bar."""
    seen = measured(page_of(tmp_path, [coverage("orders", 0)]), tmp_path, 1280)
    assert seen["buttonsBelow"] == []


@pytest.mark.parametrize("width", cases([390, 1280], quick=[390]))
def test_findings_can_be_read_at_any_width(tmp_path: Path, width: int) -> None:
    """Nothing exceeds the page's width, no text or chart is covered or squeezed, a long list has a visible end."""
    seen = measured(page_of(tmp_path, [coverage("orders", number, holes=9) for number in range(3)]), tmp_path, width)
    assert seen["scrollWidth"] <= width
    assert seen["buttonsBelow"] == []
    assert min(seen["found"]) >= 200
    assert seen["scrolls"]
    assert seen["border"] == "1px"


def measured(page: Path, directory: Path, width: int) -> dict[str, Any]:
    """Return the page's own measures in a window of this width."""
    script = """
const cells = [...document.querySelectorAll("#findings-table tbody td:nth-child(4)")];
const box = document.querySelector(".tall"), style = getComputedStyle(box);
const below = [...document.querySelectorAll(".js-plotly-plot")].filter(one => {
  const bar = one.querySelector(".modebar"), plot = one.querySelector(".plot");
  const top = one.getBoundingClientRect().top + one._fullLayout._size.t;
  return bar && plot && bar.getBoundingClientRect().bottom > top + 1;
});
document.title = JSON.stringify({scrollWidth: document.documentElement.scrollWidth,
  found: cells.map(one => one.getBoundingClientRect().width), scrolls: box.scrollHeight > box.clientHeight,
  border: style.borderTopWidth, buttonsBelow: below.map(one => one.id)});
"""
    text = page.read_text()
    (directory / "measured.html").write_text(text.replace("</body>", f"<script>{script}</script></body>"))
    frame = directory / "frame.html"
    frame.write_text(
        f'<iframe id=page width={width} height=2000 style="border:0" src="measured.html"></iframe><script>'
        'document.getElementById("page").addEventListener("load", function () {'
        "document.title = this.contentDocument.title; });</script>"
    )
    found = re.search("<title>(.*?)</title>", open_page(frame))
    assert found
    result: dict[str, Any] = json.loads(unescape(found[1]))
    return result


def test_the_topic_with_the_worst_findings_is_open(tmp_path: Path) -> None:
    """It is before topics without findings, whatever their names."""
    page = page_of(tmp_path, [coverage("a", 0), coverage("b", 0), coverage("lost", 0, holes=1)])
    names = re.findall('data-name="([a-z]*)"( open)?', page.read_text())
    assert names == [("lost", " open"), ("a", ""), ("b", "")]


def test_names_from_outside_are_text(document: str) -> None:
    """No script runs or ends because of them, and no element is created."""
    assert "<title>Archive of prod</title>" in document
    assert "<img src" not in document
    assert "<b>x" not in document
    assert unescape(document).count(EVIL) == 3
    assert "<svg" in part_of(document, "growth")  # the script after it still runs


def test_the_file_needs_no_network(tmp_path: Path) -> None:
    """The file fetches nothing, and its own policy forbids it."""
    text = page_of(tmp_path, [coverage("orders", 0)]).read_text()
    head = text[: text.index("<body>")]
    assert "default-src 'none'" in head
    assert re.findall(r"<(?:script|link|img)[^>]*\s(?:src|href)=", text) == []


@pytest.mark.full
@pytest.mark.parametrize("partitions", [600])
def test_many_partitions_stay_usable(tmp_path: Path, partitions: int) -> None:
    """Only the first topic is drawn at once; the others are drawn when they are opened."""
    rows = [coverage(f"topic-{number // 10:03d}", number % 10, holes=2) for number in range(partitions)]
    document = open_page(page_of(tmp_path, rows))
    assert document.count('<details class="topic"') == partitions // 10
    assert document.count('data-drawn="1"') == 4  # with growth and sizes
    assert bars(part_of(document, "offsets-0"), "rgb(208, 0, 0)") == 20
