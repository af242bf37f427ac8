"""Connections are opened one after the other, and one that gets nowhere does not stop the others."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest

from extender.kube import one_by_one
from extender.kube.one_by_one import OneByOne

HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Opening(OneByOne):
    """Counts the connections that are being opened; opening takes a few rounds of the loop, the first for ever."""

    def __init__(self, *, stuck: bool = False) -> None:
        super().__init__()
        self.stuck = stuck
        self.now = self.most = 0

    async def _create_direct_connection(self, *given, **named):
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            if self.stuck:
                self.stuck = False
                await asyncio.Event().wait()
            for _ in range(10):
                await asyncio.sleep(0)
            return await super()._create_direct_connection(*given, **named)
        finally:
            self.now -= 1


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HELLO)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def asked(session: aiohttp.ClientSession, url: str) -> bytes:
    async with session.get(url) as answer:
        return await answer.read()


async def test_one_connection_is_opened_at_a_time(url):
    async with aiohttp.ClientSession(connector=Opening()) as session:
        said = await asyncio.gather(*(asked(session, url) for _ in range(5)))

        assert said == [b"ok"] * 5
        assert session.connector.most == 1


async def test_one_that_gets_nowhere_stops_nobody(url, monkeypatch):
    monkeypatch.setattr(one_by_one, "TURN_S_MAX", 0.01)
    async with aiohttp.ClientSession(connector=Opening(stuck=True)) as session:
        stuck = asyncio.create_task(asked(session, url))
        await asyncio.sleep(0)
        async with asyncio.timeout(5):
            said = [await asked(session, url) for _ in range(2)]
        hangs = not stuck.done()
        stuck.cancel()
        await asyncio.gather(stuck, return_exceptions=True)

        assert (said, hangs) == ([b"ok"] * 2, True)


async def test_one_that_fails_gives_the_turn_to_the_next(url):
    async with aiohttp.ClientSession(connector=Opening()) as session:
        with pytest.raises(aiohttp.ClientConnectorError):
            await asked(session, "http://127.0.0.1:1")
        async with asyncio.timeout(5):
            said = await asked(session, url)

        assert said == b"ok"
        assert session.connector._opening._value == 1
