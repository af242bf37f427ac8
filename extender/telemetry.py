"""Logging (an event name and fields, one line each), and a watchdog that knows how long the event loop was held up."""

import asyncio
import logging
import sys
import time
from typing import Final

import structlog

WATCHDOG_S: Final = 0.002
"""How often the watchdog looks while little happens; it costs half a percent of a core."""
BUSY_S: Final = 0.0002
"""A round of the loop in which our thread worked for longer is followed by a look at the next one."""


def set_up_logging(level: str, fmt: str) -> None:
    """Send all logging of the process to standard error in the format *fmt* (``json`` or ``console``)."""
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer() if fmt == "json" else structlog.dev.ConsoleRenderer(colors=False)
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    # Libraries log through the standard module; only their warnings are of interest here.
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")


class Watchdog:
    """How long the event loop was held up: the most since it was last asked for.

    ``lag`` is how late it came to what was due, which is what a caller felt. ``held`` is how long our own thread worked
    between two looks, in CPU time: the rest of a delay is what somebody else had, another process of the machine or the
    limit of our container.

    While the loop is busy there is a look in each of its rounds, so ``held`` is exact. Only the first look after a rest
    may see two rounds as one: then it is too long by what was done before, 2 ms at most, and never too short.
    """

    def __init__(self) -> None:
        self._lag_s = 0.0
        self._held_s = 0.0

    async def run(self) -> None:
        """Look until cancelled."""
        pause_s = WATCHDOG_S
        due_s, worked_s = time.monotonic() + pause_s, time.thread_time()
        while True:
            await asyncio.sleep(pause_s)
            now_s, work_s = time.monotonic(), time.thread_time()
            self._lag_s = max(self._lag_s, now_s - due_s)
            self._held_s = max(self._held_s, work_s - worked_s)
            pause_s = 0 if work_s - worked_s > BUSY_S else WATCHDOG_S
            due_s, worked_s = now_s + pause_s, work_s

    def lag_s(self) -> float:
        """The longest delay since the last call, in seconds."""
        lag_s, self._lag_s = self._lag_s, 0.0
        return lag_s

    def held_s(self) -> float:
        """The most of a delay that was our own work, since the last call, in seconds."""
        held_s, self._held_s = self._held_s, 0.0
        return held_s
