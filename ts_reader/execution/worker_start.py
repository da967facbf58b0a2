"""The entry point of a worker process: `python -m ts_reader.execution.worker_start`, with two descriptors."""

import sys

from ts_common.installed import Hidden


def main() -> None:
    """Run the worker."""
    # pyarrow and structlog import these if they are installed, in 0.4 s; a worker neither returns frames nor draws.
    sys.meta_path.insert(0, Hidden("pandas", "rich"))
    from ts_reader.execution.worker import main as run  # noqa: PLC0415  (after what hides packages)

    run()


if __name__ == "__main__":
    main()
