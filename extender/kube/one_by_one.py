"""Opens connections one after the other: TLS handshakes that end together would hold the loop, a millisecond each."""

import asyncio
import contextlib
from typing import Any, Final

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.tracing import Trace

TURN_S_MAX: Final = 0.1
"""How long a new connection waits for the one before it: one that gets no answer must not stop the others."""


class OneByOne(aiohttp.TCPConnector):
    """A connector that begins with a connection when the one before it is open, has failed, or takes too long."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._opening = asyncio.Semaphore(1)

    async def _create_connection(
        self, req: aiohttp.ClientRequest, traces: list[Trace], times: aiohttp.ClientTimeout
    ) -> ResponseHandler:
        mine = await self._has_turn()
        try:
            return await super()._create_connection(req, traces, times)
        finally:
            if mine:
                self._opening.release()

    async def _has_turn(self) -> bool:
        """Wait for the turn; whether it came before the time was up."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TURN_S_MAX):
                return await self._opening.acquire()
        return False
