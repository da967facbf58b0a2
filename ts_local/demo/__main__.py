"""`python -m ts_local.demo`: the size from DEMO_RECORDS, signals, the exit status.

    0      every record below the next offset was read back as it was produced, and at least 99 % were shipped
    1      not so, or a part failed: the message says which
    2      DEMO_RECORDS is no usable number
    128+n  ended by signal n (Ctrl-C: 130)

However it ends, the servers are gone and the files deleted; the logs stay where a part failed.
"""

import os
import sys

from ts_local.demo.ending import EndedBySignalError, listen

DEFAULT_RECORDS = 1_000_000
FEWEST, MOST = 1_000, 100_000_000


def wanted_records(text: str) -> int:
    """How many records DEMO_RECORDS asks for; empty asks for the default.

    Raises:
        ValueError: no whole number, or out of bounds.
    """
    try:
        wanted = int(text.replace(",", "_")) if text.strip() else DEFAULT_RECORDS
    except ValueError:
        wanted = 0
    if not FEWEST <= wanted <= MOST:
        raise ValueError(f"DEMO_RECORDS={text}: a whole number from {FEWEST:,} to {MOST:,} is expected")
    return wanted


def main() -> int:
    """Run the demo and give its exit status."""
    try:
        records = wanted_records(os.environ.get("DEMO_RECORDS", ""))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    listen()
    try:
        from ts_local.demo.acts import tell  # noqa: PLC0415 - it takes a second, in which Ctrl-C should be heard too

        return tell(records)
    except EndedBySignalError as ended:
        print(f"\nEnded by {ended}. The servers are stopped and the demo's files deleted.", file=sys.stderr)
        return 128 + ended.number


if __name__ == "__main__":
    sys.exit(main())
