"""Turns on one event loop: whatever is long does one piece in a round of it, and no round has two of them.

Slices of lists, pages, steps of decisions: each is cut into pieces of a millisecond by itself, but pieces of several
that fall into one round would add up, and whoever asks us meanwhile waits for all of them.
"""

import asyncio


class Turns:
    """``async with turns``: one piece, which awaits nothing. The next one, whoever's, begins in a later round."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> None:
        await self._lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        asyncio.get_running_loop().call_soon(self._lock.release)
