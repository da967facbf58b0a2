import threading

from ts_uploader.work_queue import WorkQueue


def test_lines_are_served_in_turn_and_each_in_order() -> None:
    """A partition that is far behind does not keep another waiting."""
    tasks: WorkQueue[str] = WorkQueue()
    for task in ("a1", "a2", "a3", "b1", "c1", "c2"):
        tasks.put(task[0], task)
    assert [tasks.get() for _ in range(6)] == ["a1", "b1", "c1", "a2", "c2", "a3"]


def test_a_delayed_task_comes_after_what_is_due() -> None:
    """What is to wait does not hold up its line."""
    tasks: WorkQueue[str] = WorkQueue()
    tasks.put("a", "later", delay_seconds=0.05)
    tasks.put("a", "now")
    assert [tasks.get(), tasks.get()] == ["now", "later"]


def test_close_releases_every_waiting_thread() -> None:
    """A worker that waits ends with the queue."""
    tasks: WorkQueue[str] = WorkQueue()
    seen: list[str | None] = []
    threads = [threading.Thread(target=lambda: seen.append(tasks.get())) for _ in range(3)]
    for thread in threads:
        thread.start()
    tasks.close()
    for thread in threads:
        thread.join(10)
    assert seen == [None, None, None]
    tasks.put("a", "too late")
    assert len(tasks) == 0
