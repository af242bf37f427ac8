"""Logging (an event name and fields, one line each), and a watchdog that knows how long the event loop was held up."""

import asyncio
import logging
import sys
import time
from typing import Final

import structlog

WATCHDOG_S: Final = 0.002
"""How often the watchdog looks; every stall that is longer is seen, if up to this much too short.

What it takes for our own work may be this much too long, since it may have been done before we were late. It costs half
a percent of a core."""


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
    """How late the event loop came to what was due: the longest delay since it was last asked for.

    ``lag`` is what a caller felt. ``held`` is how much of it our own thread worked: the rest is CPU time that somebody
    else had, another process of the machine or the limit of our container.
    """

    def __init__(self) -> None:
        self._lag_s = 0.0
        self._held_s = 0.0

    async def run(self) -> None:
        """Look until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due_s, worked_s = loop.time() + WATCHDOG_S, time.thread_time()
            await asyncio.sleep(WATCHDOG_S)
            lag_s = loop.time() - due_s
            self._lag_s = max(self._lag_s, lag_s)
            self._held_s = max(self._held_s, min(lag_s, time.thread_time() - worked_s))

    def lag_s(self) -> float:
        """The longest delay since the last call, in seconds."""
        lag_s, self._lag_s = self._lag_s, 0.0
        return lag_s

    def held_s(self) -> float:
        """The most of a delay that was our own work, since the last call, in seconds."""
        held_s, self._held_s = self._held_s, 0.0
        return held_s
