"""The time that decisions are dated with: the date of the machine's clock, the pace of one that never jumps.

A wall clock may be set by an hour in either direction while we run. Waiting times, back-offs and deadlines are
differences, so they follow a clock that neither jumps nor stops while the machine sleeps; the date is taken from the
wall clock once a term.
"""

import time
from collections.abc import Callable


def steady_clock() -> float:
    """Seconds of a clock that never jumps and does not stop while the machine sleeps, where there is one."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class DatedClock:
    """Call it for milliseconds since the epoch. ``set_date`` takes the date anew; only while nothing is timed by it."""

    def __init__(self, *, steady: Callable[[], float] = steady_clock, wall: Callable[[], float] = time.time) -> None:
        self._steady, self._wall = steady, wall
        self.set_date()

    def set_date(self) -> None:
        """Take the date from the wall clock."""
        self._offset_s = self._wall() - self._steady()

    def __call__(self) -> int:
        """Milliseconds since the epoch."""
        return int((self._offset_s + self._steady()) * 1000)
