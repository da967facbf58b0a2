"""The chunks in memory: by segment and offset, within a limit of bytes; the least recently used are evicted first."""

from bisect import bisect_right
from collections import OrderedDict
from operator import attrgetter

from ts_endpoint.data.chunks import Chunk

_BY_OFFSET = attrgetter("covers_from")


class ChunkCache:
    """Keeps chunks; used on the event loop only.

    Attributes:
        hits: offsets that were found.
        misses: offsets that were not.
        nbytes: of all chunks. Replies that are not sent yet may keep the memory of evicted chunks.

    Args:
        most_bytes: of all chunks; one chunk may be larger.
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.nbytes = 0
        self.hits = 0
        self.misses = 0
        self._by_key: dict[str, list[Chunk]] = {}  # ascending by `covers_from`
        self._recent: OrderedDict[Chunk, str] = OrderedDict()

    def find(self, key: str, offset: int) -> Chunk | None:
        """Return the chunk of an object that covers an offset; None without one."""
        chunks = self._by_key.get(key)
        if chunks is not None:
            # Reads that began at different positions overlap, so the last chunk that begins below may end below too.
            at = bisect_right(chunks, offset, key=_BY_OFFSET)
            for chunk in reversed(chunks[max(0, at - 3) : at]):
                if offset < chunk.covers_to:
                    self._recent.move_to_end(chunk)
                    self.hits += 1
                    return chunk
        self.misses += 1
        return None

    def add(self, key: str, chunk: Chunk) -> None:
        """Keep a chunk; evict others if there is no room."""
        chunks = self._by_key.setdefault(key, [])
        chunks.insert(bisect_right(chunks, chunk.covers_from, key=_BY_OFFSET), chunk)
        self._recent[chunk] = key
        self.nbytes += chunk.held
        while self.nbytes > self.most_bytes and len(self._recent) > 1:
            former, its_key = self._recent.popitem(last=False)
            self.nbytes -= former.held
            others = self._by_key[its_key]
            others.remove(former)
            if not others:
                del self._by_key[its_key]
