"""`python -m dev.demo`: the size from DEMO_RECORDS, signals, the exit status.

With DEMO_KEEP=1 the store and the endpoint stay until Enter, and a command for each door is printed.

    0      every record was read back unchanged, and at least 99 % are in segments
    1      a part failed; the message names it
    2      DEMO_RECORDS is malformed
    128+n  ended by signal n (Ctrl-C: 130)

In every case the servers are ended and the files deleted; after a failure the logs stay.
"""

import os
import sys

from dev.demo.ending import EndedBySignalError, listen

DEFAULT_RECORDS = 1_000_000
FEWEST, MOST = 1_000, 100_000_000


def wanted_records(text: str) -> int:
    """Return the number of records in DEMO_RECORDS, or the default if it is empty.

    Raises:
        ValueError: not a whole number, or out of bounds.
    """
    try:
        wanted = int(text.replace(",", "_")) if text.strip() else DEFAULT_RECORDS
    except ValueError:
        wanted = 0
    if not FEWEST <= wanted <= MOST:
        raise ValueError(f"DEMO_RECORDS={text}: expected a whole number from {FEWEST:,} to {MOST:,}")
    return wanted


def main() -> int:
    """Run the demo and return its exit status."""
    try:
        records = wanted_records(os.environ.get("DEMO_RECORDS", ""))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    listen()
    try:
        from dev.demo.acts import tell  # noqa: PLC0415 - it takes a second; Ctrl-C must work meanwhile

        return tell(records)
    except EndedBySignalError as ended:
        print(f"\nEnded by {ended}. The servers are stopped and the demo's files deleted.", file=sys.stderr)
        return 128 + ended.number


if __name__ == "__main__":
    sys.exit(main())
