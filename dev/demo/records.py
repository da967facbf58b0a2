"""The records of the demo: page views of one day, each a pure function of its number."""

from dev.local.kafka.topics import Record

DAY_MS = 86_400_000
HOUR_MS = DAY_MS // 24

_SPREAD = 0x9E37_79B9_7F4A_7C15  # 2^64 / golden ratio: adjacent numbers differ in most bits
_MASK = (1 << 64) - 1
_AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64; rv:143.0) Gecko/20100101 Firefox/143.0",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 14_7) AppleWebKit/605.1.15 Safari/605.1",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/141.0 Safari/537",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) AppleWebKit/605.1.15 Mobile/15E148",
)
_COUNTRIES = ("DE", "FR", "JP", "BR", "US", "IN", "KE")
_SOURCES = (b"web", b"ios", b"android")


class Day:
    """Page views, evenly distributed over one day.

    Args:
        start_ms: its first millisecond, since 1970.
        count: number of views.
    """

    def __init__(self, start_ms: int, count: int) -> None:
        self.start_ms = start_ms
        self.count = count

    def view(self, number: int) -> Record:
        """Return the view of a number, from 0; later numbers have no earlier timestamps.

        About 270 bytes of JSON. Headers have most forms that Kafka allows: no header, a null value, one name twice. One
        in 50 visitors is anonymous and has no key.
        """
        chance = number * _SPREAD & _MASK
        user = chance >> 40
        value = (
            f'{{"view":{number},"user":"user-{user % 50_000:05d}","page":"/articles/{(chance >> 20) % 9_973}",'
            f'"session":"{chance:016x}{chance ^ user:016x}","country":"{_COUNTRIES[user % 7]}",'
            f'"referrer":"https://search.example/?q={chance % 100_003:x}","agent":"{_AGENTS[user % 4]}",'
            f'"milliseconds":{chance % 30_011}}}'
        )
        headers: list[tuple[str, bytes | None]] = []
        if number % 20:
            headers.append(("source", _SOURCES[user % 3]))
            headers.append(("trace", f"{chance & 0xFFFF_FFFF:08x}".encode()))
        if number % 7 == 0:
            headers += [("experiment", b"blue"), ("experiment", b"large"), ("consent", None)]
        return Record(
            value.encode(),
            key=None if number % 50 == 0 else f"user-{user % 50_000:05d}".encode(),
            headers=headers,
            timestamp=self.start_ms + number * DAY_MS // self.count,
        )

    def closing(self, partition: int) -> Record:
        """Return the record that closes a partition's last segment: it is more than `segment.ms` after the day."""
        return Record(
            b'{"view":null,"closes":"the segment before it"}',
            key=b"closing",
            headers=[("source", b"demo")],
            partition=partition,
            timestamp=self.start_ms + DAY_MS + HOUR_MS,
        )
