"""The metrics of the endpoint."""

import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from ts_endpoint.status.metric_families import FAMILIES, PREFIX, make_registry
from ts_endpoint.status.request_counts import Durations


def test_every_family_is_served_with_its_type_and_description() -> None:
    """Also without a number, so that a rule about it is no error."""
    text = generate_latest(make_registry({})).decode()
    found = {family.name: (family.type, family.documentation) for family in text_string_to_metric_families(text)}
    for family in FAMILIES:
        assert found[f"{PREFIX}_{family.name}"] == (family.kind, family.text)
    assert f"{PREFIX}_build_info" in text
    assert "process_resident_memory_bytes" in found


def test_numbers_are_read_at_each_scrape() -> None:
    """With labels, without, and as a histogram; operations of stores begin with 0."""
    times, opened = Durations(), [3]
    registry = make_registry(
        {
            "connections": lambda: opened[0],
            "requests": lambda: {("FETCH",): 2.0},
            "store_requests": lambda: {("get",): 5.0},
            "fetch_seconds": times,
        }
    )
    generate_latest(registry)
    opened[0] = 4
    for seconds in (0.0005, 0.002, 60.0):
        times.add(seconds)
    lines = generate_latest(registry).decode().splitlines()
    for expected in (
        "ts_endpoint_connections 4.0",
        'ts_endpoint_requests_total{kind="FETCH"} 2.0',
        'ts_endpoint_store_requests_total{operation="get"} 5.0',
        'ts_endpoint_store_requests_total{operation="head"} 0.0',
        'ts_endpoint_fetch_seconds_bucket{le="0.001"} 1.0',
        'ts_endpoint_fetch_seconds_bucket{le="0.0025"} 2.0',
        'ts_endpoint_fetch_seconds_bucket{le="30.0"} 2.0',
        'ts_endpoint_fetch_seconds_bucket{le="+Inf"} 3.0',
        "ts_endpoint_fetch_seconds_count 3.0",
        "ts_endpoint_fetch_seconds_sum 60.0025",
    ):
        assert expected in lines


def test_a_number_of_an_unknown_metric_is_an_error() -> None:
    """A misspelt name would leave a metric without samples."""
    with pytest.raises(ValueError, match=r"no such metric: \['connection'\]"):
        make_registry({"connection": lambda: 1})
