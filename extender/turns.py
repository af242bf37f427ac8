"""Turns on one event loop: whatever is long does one piece in a round of it, and no round has two of them.

Slices of lists, pages, steps of decisions: each is cut into pieces of a millisecond by itself, but pieces of several
that fall into one round would add up, and whoever asks us meanwhile waits for all of them.
"""

import asyncio
from collections import deque


class Turns:
    """``async with turns``: one piece, which awaits nothing. The next one, whoever's, begins in a later round.

    They come in the order in which they asked. A lock would do the same, but leave every second round empty.
    """

    def __init__(self) -> None:
        self._taken = False
        self._ends: asyncio.Handle | None = None
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def __aenter__(self) -> None:
        if not self._taken:
            self._taken = True
            return
        waiter = asyncio.get_running_loop().create_future()
        try:
            if self._ends is None:
                self._waiting.append(waiter)
                await waiter
            else:  # nobody has waited until now: the next round is ours
                self._ends.cancel()
                self._ends = None
                waiter.set_result(None)
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._pass_on()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        """The next round is that of who has waited for longest, or free."""
        self._ends = None
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._ends = asyncio.get_running_loop().call_soon(self._end)

    def _end(self) -> None:
        self._ends, self._taken = None, False
