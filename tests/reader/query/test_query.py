"""The value that every reader makes and the planner reads."""

from tests.made_archive import CLUSTER, MadeArchive
from ts_common.archive.layout import Layout
from ts_reader.query.query import Query, Subscription, settled


def test_the_entropy_bits_are_the_querys_or_the_layouts(archive: MadeArchive) -> None:
    """Without either, keys have none; a query that has them makes no request."""
    query = Query(archive.location, CLUSTER, None, Subscription(("t",)))
    assert settled(archive.store, query).keys.entropy_bits == 0
    archive.store.put(archive.keys.layout, Layout(5, CLUSTER, 0).encode())
    assert settled(archive.store, query).keys.entropy_bits == 5
    given = Query(archive.location, CLUSTER, 3, Subscription(("t",)))
    assert settled(archive.store, given) is given
