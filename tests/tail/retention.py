"""A collector: raises `log.start`, and deletes a grace later what is below its floor."""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tests.tail.bucket import Archive
from tests.tail.steps import Steps, do, put

if TYPE_CHECKING:
    from tests.tail.world import World


def collector(world: "World", archive: Archive) -> Steps[None]:
    """Hide and delete some segments, again and again."""
    while True:
        yield from do(lambda: None)
        if world.chance.random() < 0.03:
            yield from _collect(world, archive)


def _collect(world: "World", archive: Archive) -> Steps[None]:
    commit = yield from do(lambda: archive.commit)
    segments = yield from do(lambda: dict(archive.segments))
    start, etag = yield from do(lambda: (archive.log_start, archive.start_etag))
    if commit is None or start is None or start.lineage != commit.lineage:
        return
    ends = {each.copy.end for each in segments.values() if start.offset < each.copy.end <= commit.next_offset}
    if not ends:
        return
    floor = start.offset if start.floor is None else start.floor
    writer = f"gc-{world.time}"
    hides = replace(start, offset=min(ends), floor=floor, since=writer, written_by=writer)
    if (yield from put(lambda: archive.put_start(hides, etag))) is not True:
        return
    until = world.time + world.grace
    while world.time < until:
        yield from do(lambda: None)
    deletes = replace(hides, floor=hides.offset, since=None, written_by=f"gc-{world.time}")
    if (yield from put(lambda: archive.put_start(deletes, etag + 1))) is not True:
        return
    for name, segment in segments.items():
        if segment.copy.end <= hides.offset:
            yield from do(partial(archive.segments.pop, name, None))
    world.counts["collected"] += 1
