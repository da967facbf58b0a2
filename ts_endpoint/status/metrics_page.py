"""The reference of the endpoint's metrics as Markdown, from their descriptions."""

from ts_common.store.wrappers.counted import OPERATIONS
from ts_endpoint.status.metric_families import FAMILIES, PREFIX, Family

_SUFFIXES = {"counter": "_total"}


def section() -> str:
    """Return a section of Markdown."""
    lines = [
        "## The endpoint",
        "",
        "From `ts_endpoint/status/metric_families.py`. [The endpoint](endpoint.md) serves them at `/metrics` in",
        "Prometheus' text format, with the metrics of its process (`process_*`) and `ts_endpoint_build_info`.",
        "",
        "| metric | type | meaning |",
        "| --- | --- | --- |",
        *map(_row, FAMILIES),
        "",
        "`operation` of `ts_endpoint_store_requests_total` and `ts_endpoint_store_failures_total`:",
        "",
        "| value | requests of |",
        "| --- | --- |",
        *(f"| `{name}` | {meaning} |" for name, meaning in OPERATIONS.items()),
        "",
        "`kind` and `error` have Kafka's names of requests and errors. `peer` is an address of `--peers`.",
    ]
    return "\n".join(lines) + "\n"


def _row(family: Family) -> str:
    labels = " ".join(f"`{label}`" for label in family.labels)
    meaning = family.text + (f" Labels: {labels}." if labels else "")
    return f"| `{PREFIX}_{family.name}{_SUFFIXES.get(family.kind, '')}` | {family.kind} | {meaning} |"
