"""docs/examples.md, run from top to bottom: a block that breaks, or prints something else than it shows, fails."""

import json
import os
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyspark
import pytest

from dev.local.jars import spark_avro_jar
from tests.common.log_format.build import batch, record, sized, varint
from tests.docs.commands import CHECKOUT, blocks
from tests.spark.archives import Archive
from tests.spark.page_process import run
from ts_common.archive.layout import Layout

PAGE = CHECKOUT / "docs/examples.md"
SECONDS = 280
ELEVEN_AT_NIGHT = 1_767_222_000_000  # 2025-12-31 23:00 UTC, in ms
MINUTE = 60_000

Keyed = tuple[int, bytes | None, bytes | None]  # minutes from eleven, key, value
Headers = Sequence[tuple[bytes, bytes | None]]


def segment(*records: Keyed, headers: Sequence[Headers] = ()) -> bytes:
    """One batch from offset 0 on; `headers` of the first records."""
    first, last = records[0][0], max(minutes for minutes, *_ in records)
    made = [
        record(offset, key, value, headers[offset] if offset < len(headers) else (), (minutes - first) * MINUTE)
        for offset, (minutes, key, value) in enumerate(records)
    ]
    begins, ends = (ELEVEN_AT_NIGHT + minutes * MINUTE for minutes in (first, last))
    return batch(0, made, base_timestamp=begins, max_timestamp=ends)


def put(archive: Archive, topic: str, log: bytes, count: int, partition: int = 0) -> None:
    """A partition of one segment."""
    archive.put_segment(topic, 0, log, partition=partition)
    archive.commit(topic, count, partition=partition)


def view(user: str, url: str, ms: object, *tags: str) -> bytes:
    return json.dumps({"user": user, "url": url, "ms": ms, "tags": tags}).encode()


def framed(schema_id: int, avro: bytes) -> bytes:
    """As serializers of a schema registry write it."""
    return struct.pack(">bI", 0, schema_id) + avro


def order(number: int, total: float) -> bytes:
    """Avro of a record: a long is a varint, a double is little-endian."""
    return varint(number) + struct.pack("<d", total)


def fill(archive: Archive) -> None:
    """What the page reads."""
    first = [
        (-50, b"ada", view("ada", "/", 120, "new")),
        (-20, b"ada", view("ada", "/books", 80, "new", "mobile")),
        (5, b"ada", b'{"user": "ada", "url'),
        (80, b"ada", view("ada", "/", 100)),
    ]
    second = [
        (-45, b"bob", view("bob", "/", 200, "mobile")),
        (30, b"bob", view("bob", "/pens", "soon")),
        (45, None, None),
        (90, b"bob", view("bob", "/", 100)),
    ]
    headers = [[(b"trace", b"t-1"), (b"host", b"web-1")], [(b"trace", b"t-2"), (b"trace", b"t-3")]]
    put(archive, "page_views", segment(*first, headers=headers), len(first))
    put(archive, "page_views", segment(*second), len(second), partition=1)
    clicks = [(0, None, sized(b"ada") + varint(10) + varint(-3)), (1, None, sized(b"bob") + varint(0) + varint(7000))]
    put(archive, "clicks", segment(*clicks), len(clicks))
    orders = [
        (0, b"1", framed(7, order(1, 9.5))),
        (1, b"2", framed(7, order(2, 20.0))),
        (2, b"3", framed(9, order(3, 7.25) + varint(1) + sized(b"EUR"))),
        (3, b"4", framed(9, order(4, 1.0) + varint(0))),
        (4, b"1", None),
        (5, b"5", b"no frame"),
        (6, b"6", framed(70_000, order(6, 1.0))),
    ]
    put(archive, "orders", segment(*orders), len(orders))
    accounts = [
        (-30, b"ada", b"100"),
        (-20, b"bob", b"50"),
        (-10, b"ada", b"80"),
        (10, b"bob", None),
        (20, b"eve", b"5"),
        (30, b"ada", b"70"),
    ]
    put(archive, "accounts", segment(*accounts), len(accounts))


@pytest.mark.full
def test_the_page_runs_and_prints_what_it_shows(tmp_path: Path) -> None:
    """Every block in its order, with an archive of five entropy bits; what prints nothing shows nothing."""
    archive = Archive(tmp_path / "store", entropy_bits=5)
    archive.store.put(archive.keys.layout, Layout(archive.keys.entropy_bits, archive.keys.cluster, 0).encode())
    fill(archive)
    variables = {
        "LOCATION": archive.location,
        "CLUSTER": archive.keys.cluster,
        "LAKE": (tmp_path / "lake").as_uri(),
    }
    report, log = tmp_path / "report.json", tmp_path / "page.log"
    arguments = [str(PAGE), json.dumps(variables), str(report), str(spark_avro_jar())]
    with log.open("wb") as out:
        status = subprocess.run(
            [sys.executable, "-m", "tests.spark.page_process", *arguments],
            cwd=CHECKOUT,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_DIRS": str(tmp_path / "local")},
            stdout=out,
            stderr=out,
            timeout=SECONDS,
            check=False,
        ).returncode
    assert status == 0, log.read_text()
    printed = json.loads(report.read_text())
    for block, text in zip(blocks(PAGE, language="python"), printed, strict=True):
        assert text.rstrip() == block.shown.rstrip(), f"{PAGE.name}, line {block.line}"


def test_a_block_that_fails_is_reported_by_its_line(tmp_path: Path) -> None:
    """Output of other blocks does not hide it; only names of the first block can be set."""
    page = tmp_path / "page.md"
    page.write_text('```python\nNAME = "mine"\n```\n\nText.\n\n```python\nprint(NAME)\n\nNAME.missing\n```\n')
    with pytest.raises(AttributeError) as caught:
        run(page, {}, {"NAME": "yours"})
    assert [(entry.path, entry.lineno + 1) for entry in caught.traceback][-1] == (page, 10)
    with pytest.raises(ValueError, match=r"the first block sets \['NAME'\]; \['OTHER'\] are given"):
        run(page, {}, {"OTHER": "yours"})


def test_the_jar_is_of_pysparks_line() -> None:
    """The jar has PySpark's version line, and the page names the jar that ran it."""
    name = spark_avro_jar().name
    line = pyspark.__version__.rpartition(".")[0]
    assert name.startswith(f"spark-avro_2.13-{line}.")
    page = PAGE.read_text()
    assert f"jars/{name}" in page
    assert page.count(f"spark-avro_2.13:{name.removeprefix('spark-avro_2.13-').removesuffix('.jar')}") == 2
