import threading

from hypothesis import given
from hypothesis import strategies as st

from ts_uploader.process.work_queue import (
    TURNS,
    URGENT_BELOW,
    WorkQueue,
)


def drained(tasks: WorkQueue[str]) -> list[str | None]:
    return [tasks.get() for _ in range(len(tasks))]


def test_lines_are_served_in_turn_and_each_in_order() -> None:
    """A partition that is far behind does not keep another waiting."""
    tasks: WorkQueue[str] = WorkQueue()
    for task in ("a1", "a2", "a3", "b1", "c1", "c2"):
        tasks.put(task[0], task)
    assert drained(tasks) == ["a1", "b1", "c1", "a2", "c2", "a3"]


def test_a_delayed_task_runs_after_the_tasks_that_are_due() -> None:
    """What is to wait does not hold up its line, however urgent it is."""
    tasks: WorkQueue[str] = WorkQueue()
    tasks.put("a", "later", delay_seconds=0.05, urgency=0.0)
    tasks.put("a", "now")
    assert drained(tasks) == ["now", "later"]


def test_a_line_that_is_dropped_is_served_no_more() -> None:
    """Neither in its turn nor for its urgency; the others are, and it can be started again."""
    tasks: WorkQueue[str] = WorkQueue()
    for task, urgency in (("a1", None), ("gone1", 0.1), ("gone2", None), ("b1", 0.4)):
        tasks.put(task[:-1], task, urgency=urgency)
    tasks.drop("gone")
    tasks.drop("never there")
    tasks.put("gone", "gone3")
    assert drained(tasks) == ["b1", "a1", "gone3"]


def test_the_line_with_the_least_left_is_served_first() -> None:
    """Urgent lines before the others, by what is left; the others in turn behind them."""
    tasks: WorkQueue[str] = WorkQueue()
    for task, urgency in (("a", None), ("b", 0.4), ("c", 0.1), ("d", 0.9), ("e", 0.2)):
        tasks.put(task, task, urgency=urgency)
    assert drained(tasks) == ["c", "e", "b", "a", "d"]


def test_half_is_not_urgent() -> None:
    """At the threshold a line still waits its turn, just below it no longer."""
    tasks: WorkQueue[str] = WorkQueue()
    tasks.put("a", "a")
    tasks.put("half", "half", urgency=URGENT_BELOW)
    tasks.put("less", "less", urgency=URGENT_BELOW - 0.001)
    assert drained(tasks) == ["less", "a", "half"]


def test_equally_urgent_lines_are_served_in_turn() -> None:
    """Where all are past their retention none keeps another waiting, also across the turns of all lines."""
    tasks: WorkQueue[str] = WorkQueue()
    for task in ("a1", "a2", "a3", "b1", "b2", "b3", "c1", "c2", "c3"):
        tasks.put(task[0], task, urgency=0.0)
    assert drained(tasks) == ["a1", "b1", "c1", "a2", "b2", "c2", "a3", "b3", "c3"]


def test_an_urgent_task_makes_the_tasks_before_it_urgent() -> None:
    """Its line keeps its order and is urgent until that task is out of it."""
    tasks: WorkQueue[str] = WorkQueue()
    tasks.put("a", "a1")
    for task, urgency in (("b1", None), ("b2", 0.3), ("b3", 0.8)):
        tasks.put("b", task, urgency=urgency)
    assert drained(tasks) == ["b1", "b2", "a1", "b3"]


def test_one_of_every_four_tasks_is_from_the_line_whose_turn_it_is() -> None:
    """A line that is not urgent is served next to one that always is."""
    tasks: WorkQueue[str] = WorkQueue()
    for line in ("a", "b"):
        tasks.put(line, line)
    for n in range(8):
        tasks.put("urgent", str(n), urgency=0.0)
    assert TURNS == 4
    assert drained(tasks) == ["0", "1", "2", "a", "3", "4", "5", "b", "6", "7"]


URGENCIES = st.sampled_from([None, 0.0, 0.25, 0.49, 0.5, 1.0])
PUTS = st.tuples(st.integers(0, 2), URGENCIES)


# Few lines and many tasks: only so a line can wait for longer than the bound.
@given(st.lists(PUTS, min_size=30, max_size=60), st.lists(st.none() | PUTS, max_size=60))
def test_no_line_starves_and_each_keeps_its_order(
    first: list[tuple[int, float | None]], then: list[tuple[int, float | None] | None]
) -> None:
    """For any order of put (line, urgency) and get (None): nothing is lost or doubled, and the bound holds."""
    tasks: WorkQueue[tuple[int, int]] = WorkQueue()
    waiting: dict[int, list[int]] = {}
    turns_left: dict[int, int] = {}  # how many others each waiting line may still see served before it
    put = 0

    def get() -> None:
        task = tasks.get()
        assert task is not None
        line, number = task
        assert waiting[line].pop(0) == number
        del turns_left[line]
        for other in turns_left:
            turns_left[other] -= 1
            assert turns_left[other] > 0, f"line {other} starves"
        if waiting[line]:
            turns_left[line] = len(turns_left) * TURNS + TURNS
        else:
            del waiting[line]

    for step in (*first, *then):
        if step is not None:
            line, urgency = step
            tasks.put(line, (line, put), urgency=urgency)
            waiting.setdefault(line, []).append(put)
            turns_left.setdefault(line, len(waiting) * TURNS)
            put += 1
        elif waiting:
            get()
        assert len(tasks) == sum(len(numbers) for numbers in waiting.values())
    while waiting:
        get()
    assert len(tasks) == 0


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
