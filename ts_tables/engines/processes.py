"""Tasks on worker processes of this machine, without a JVM."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait

from ts_common.execution.process_pool import run_in_worker
from ts_tables.tasks import Task, TaskResult


def run_in_processes(
    tasks: Sequence[Task], done: Callable[[TaskResult], None] = lambda _: None, workers: int | None = None
) -> list[TaskResult]:
    """Return the result of each task, in their order; the first error ends the others.

    Args:
        tasks: of one plan.
        done: called with each result, in the order in which they end, by several threads.
        workers: the number of processes; None for the number of processors.

    Raises:
        what a task raises; StoreUnavailable: a worker process was killed.
    """
    count = min(workers or len(os.sched_getaffinity(0)), len(tasks))
    if count <= 1:
        return list(_here(tasks, done))

    def run(task: Task) -> TaskResult:
        result = run_in_worker(task)
        done(result)
        return result

    with ThreadPoolExecutor(count) as threads:
        futures: list[Future[TaskResult]] = [threads.submit(run, task) for task in tasks]
        wait(futures, return_when=FIRST_EXCEPTION)
        for future in futures:
            future.cancel()
        failed = next((each for each in futures if not each.cancelled() and each.done() and each.exception()), None)
    return [(failed or future).result() for future in futures]


def _here(tasks: Sequence[Task], done: Callable[[TaskResult], None]) -> Iterator[TaskResult]:
    for task in tasks:
        result = task()
        done(result)
        yield result
