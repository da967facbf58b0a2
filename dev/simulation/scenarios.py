"""What is simulated: the fleet, its load, what happens to it, and which part of it the simulation has."""

from dataclasses import dataclass, replace

_HOUR = 3600.0
_DAY = 24 * _HOUR
TERABYTE = 10**12


@dataclass(frozen=True, slots=True)
class Scenario:
    """A fleet and its day; times are seconds since the start.

    A simulated partition stands for `weight` partitions: the store's limits are divided by it, and requests and
    segments multiplied. If each broker has only a part of its partitions, its upload threads are busy for them all.

    Attributes:
        bytes_per_day: of the whole fleet.
        entropy_bits: of the keys in the store.
        seconds: simulated.
        partitions: that each broker leads.
        sampled_brokers: simulated ones.
        sampled_partitions: simulated ones of each of them.
        segment_seconds: `segment.ms`; segments close by time.
        outage: begin and end of an outage of the store.
        elections_at: when every second partition gets another leader.
        writes: requests per second that the store serves under each prefix: PUT.
        reads: the same of GET, HEAD and LIST.
    """

    title: str
    bytes_per_day: float
    entropy_bits: int = 5
    seconds: float = _DAY
    brokers: int = 500
    partitions: int = 1000
    sampled_brokers: int = 500
    sampled_partitions: int = 10
    segment_seconds: float = _HOUR
    outage: tuple[float, float] = (10 * _HOUR, 11 * _HOUR)
    elections_at: float = 14 * _HOUR
    writes: float = 3500.0
    reads: float = 5500.0

    @property
    def share(self) -> float:
        """How many partitions of its broker a simulated one stands for."""
        return self.partitions / self.sampled_partitions

    @property
    def weight(self) -> float:
        """How many partitions of the fleet a simulated one stands for."""
        return self.brokers / self.sampled_brokers * self.share

    @property
    def segment_bytes(self) -> float:
        """Bytes of each segment."""
        return self.bytes_per_day * self.segment_seconds / _DAY / self.brokers / self.partitions


# Whole brokers: the requests of an outage's end and of many elections are those of real upload threads and gates.
_BURST = Scenario(
    "",
    864 * TERABYTE,
    seconds=3.5 * _HOUR,
    sampled_brokers=20,
    sampled_partitions=1000,
    outage=(1 * _HOUR, 2 * _HOUR),
    elections_at=3 * _HOUR,
)
SCENARIOS = {
    "200TB": Scenario("200 TB a day", 200 * TERABYTE),
    "2PB": Scenario("2 PB a day", 2000 * TERABYTE),
    "200TB-burst": replace(_BURST, title="200 TB a day, whole brokers", bytes_per_day=200 * TERABYTE),
    "2PB-burst": replace(_BURST, title="2 PB a day, whole brokers", bytes_per_day=2000 * TERABYTE),
    **{
        f"bits{bits}": replace(_BURST, title=f"864 TB a day, whole brokers, {bits} entropy bits", entropy_bits=bits)
        for bits in (0, 1, 3, 5)
    },
}
SHORT = Scenario(
    "a short run",
    200 * TERABYTE / 125,
    entropy_bits=1,
    seconds=_HOUR,
    brokers=4,
    partitions=5,
    sampled_brokers=4,
    sampled_partitions=5,
    segment_seconds=300.0,
    outage=(1200.0, 1800.0),
    elections_at=2700.0,
)
