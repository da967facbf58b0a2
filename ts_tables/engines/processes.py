"""Tasks on worker processes of this machine, without a JVM."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import TypeVar

from ts_reader.execution.process_pool import run_in_worker

T = TypeVar("T")


def run_in_processes(
    tasks: Sequence[Callable[[], T]], done: Callable[[T], None] = lambda _: None, workers: int | None = None
) -> list[T]:
    """Return the result of each task, in their order; the first error ends the others.

    Args:
        tasks: can be pickled.
        done: called with each result, in the order that they end, by several threads.
        workers: the number of processes; None for the number of processors.

    Raises:
        what a task raises; StoreUnavailable: a worker process was killed.
    """
    count = min(workers or len(os.sched_getaffinity(0)), len(tasks))
    if count <= 1:
        return list(_here(tasks, done))

    def run(task: Callable[[], T]) -> T:
        result = run_in_worker(task)
        done(result)
        return result

    with ThreadPoolExecutor(count) as threads:
        futures: list[Future[T]] = [threads.submit(run, task) for task in tasks]
        wait(futures, return_when=FIRST_EXCEPTION)
        for future in futures:
            future.cancel()
        failed = next((each for each in futures if not each.cancelled() and each.exception()), None)
    return [(failed or future).result() for future in futures]


def _here(tasks: Sequence[Callable[[], T]], done: Callable[[T], None]) -> Iterator[T]:
    for task in tasks:
        result = task()
        done(result)
        yield result
