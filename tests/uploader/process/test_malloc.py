"""The C library's heaps: threads share them."""

import subprocess
import sys

# Each thread holds what it allocated until all have; an arena of glibc's begins at a multiple of 64 MiB.
_PROGRAM = """
import re, threading
{bound}
together = threading.Barrier(9)
def hold():
    held = [bytes(2000) for _ in range(500)]
    together.wait(60)
    together.wait(60)
for _ in range(8):
    threading.Thread(target=hold).start()
together.wait(60)
starts = re.findall("^([0-9a-f]+)-[0-9a-f]+ rw", open("/proc/self/maps").read(), re.M)
print(sum(int(start, 16) % (64 << 20) == 0 for start in starts))
together.wait(60)
"""


def arenas(bound: str) -> int:
    """How many arenas eight threads get in addition to the main heap."""
    done = subprocess.run([sys.executable, "-c", _PROGRAM.format(bound=bound)], capture_output=True, check=True)
    return int(done.stdout)


def test_threads_share_two_arenas() -> None:
    """The main heap and one more; without the bound each of these threads has its own."""
    assert arenas("from ts_uploader.process.malloc import bound_arenas; bound_arenas()") <= 1
    assert arenas("") > 4
