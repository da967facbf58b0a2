"""A process with a wrong clock: Python's time functions are shifted, and so are the signatures of its requests."""

from pathlib import Path

_SHIFT = """
import datetime, time
_true, _shift = time.time, {seconds}
class Shifted(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(_true() + _shift, tz)
    @classmethod
    def utcnow(cls):
        return cls.fromtimestamp(_true() + _shift, datetime.timezone.utc).replace(tzinfo=None)
datetime.datetime = Shifted
time.time = lambda: _true() + _shift
"""
_CHECKOUT = Path(__file__).parents[1]


def wrong_clock(directory: Path, seconds: int) -> dict[str, str]:
    """Return environment variables for a Python process.

    Args:
        directory: for the module that Python imports at its start.
        seconds: how far ahead the clock is.
    """
    place = directory / "clock"
    place.mkdir()
    (place / "sitecustomize.py").write_text(_SHIFT.format(seconds=seconds))
    return {"PYTHONPATH": f"{place}:{_CHECKOUT}"}
