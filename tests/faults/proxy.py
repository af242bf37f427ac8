"""The network between one replica and the API server, in the hands of a test.

It ends TLS with a certificate of the rig's CA and speaks TLS to the real API server, with whatever credentials the
client sends. So it sees every request whole: it can hold one back, lose its answer, hold back what a watch shows, cut
or stall everything, or be slow. It keeps a record of what reached the API server, which is the proof that a replica
without the lease wrote nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import aiohttp
from aiohttp import web
from yarl import URL

HOP_BY_HOP = {"host", "connection", "keep-alive", "transfer-encoding", "content-length", "upgrade", "te", "trailer"}
BODY_BYTES_MAX = 64 << 20
READS = ("GET", "HEAD")


@dataclass
class Call:
    """One request. ``status`` 0: it has not been answered by the API server (yet). ``token``: who asks."""

    method: str
    path: str
    query: str
    body: bytes
    token: str = ""
    at_s: float = field(default_factory=time.monotonic)
    status: int = 0

    @property
    def is_watch(self) -> bool:
        """Whether it opens a watch."""
        return "watch=" in self.query

    @property
    def is_write(self) -> bool:
        """Whether it can change something."""
        return self.method not in READS


Wanted = Callable[[Call], bool]


class Point(Enum):
    """Where a call is caught: before the API server has it, or when its answer is on the way back."""

    BEFORE = "before"
    AFTER = "after"


class Hook:
    """Catches calls that match from the (skip + 1)th on, all of them, until told what becomes of them.

    ``late``: a call that was caught reaches the API server even when its sender has hung up meanwhile.
    """

    def __init__(self, wanted: Wanted, point: Point, *, skip: int, late: bool) -> None:
        self.caught: list[Call] = []
        self.late = late
        self._wanted, self._point, self._skip = wanted, point, skip
        self._first = asyncio.Event()
        self._passes: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def first(self, *, timeout_s: float = 60.0) -> Call:
        """Wait until the first call is caught. Raises: TimeoutError."""
        async with asyncio.timeout(timeout_s):
            await self._first.wait()
        return self.caught[0]

    def pass_on(self) -> None:
        """Let go of everything: what was caught goes on its way."""
        if not self._passes.done():
            self._passes.set_result(True)

    def drop(self) -> None:
        """What was caught never arrives; its connection breaks."""
        if not self._passes.done():
            self._passes.set_result(False)

    async def meets(self, call: Call, point: Point) -> bool:
        """Hold *call* if it is to be caught here; False: it is lost."""
        if point is not self._point or self._passes.done() or not self._wanted(call):
            return True
        if self._skip > 0:
            self._skip -= 1
            return True
        self.caught.append(call)
        self._first.set()
        return await asyncio.shield(self._passes)


class Lost(Exception):
    """The call is lost: its connection breaks without an answer."""


class Proxy:
    """One replica's way to the API server. ``delay_s`` is added to every request."""

    def __init__(self, server: str, *, trust: ssl.SSLContext, serving: ssl.SSLContext, port: int) -> None:
        self.url = f"https://127.0.0.1:{port}"
        self.calls: list[Call] = []
        self.delay_s = 0.0
        self._server, self._trust, self._serving, self._port = server, trust, serving, port
        self._flows = asyncio.Event()
        self._flows.set()
        self._watches_flow = asyncio.Event()
        self._watches_flow.set()
        self._held_watches = re.compile("$^")
        self._hooks: list[Hook] = []
        self._late: set[asyncio.Task[Any]] = set()
        self._web: web.Server | None = None
        self._runner: web.ServerRunner | None = None
        self._session: aiohttp.ClientSession | None = None

    # Life.

    async def start(self) -> None:
        """Listen."""
        connector = aiohttp.TCPConnector(ssl=self._trust, limit=0)
        self._session = aiohttp.ClientSession(
            connector=connector, auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None)
        )
        self._web = web.Server(self._handle, access_log=None, handler_cancellation=True)
        self._runner = web.ServerRunner(self._web, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port, ssl_context=self._serving).start()

    async def close(self) -> None:
        """Break everything that is open and stop listening."""
        self.heal()
        self.cut()
        for task in self._late:
            task.cancel()
        await asyncio.gather(*self._late, return_exceptions=True)
        if self._runner is not None:
            await self._runner.cleanup()
        if self._session is not None:
            await self._session.close()

    # What a test does to the network.

    def catch(self, wanted: Wanted, point: Point, *, skip: int = 0, late: bool = False) -> Hook:
        """Catch calls; see Hook."""
        hook = Hook(wanted, point, skip=skip, late=late)
        self._hooks.append(hook)
        return hook

    def cut(self) -> None:
        """Break every connection that is open."""
        for connection in list(self._web.connections) if self._web else ():
            if connection.transport is not None:
                connection.transport.abort()

    def stall(self) -> None:
        """From now on nothing gets through, and nobody is told: a cable is out somewhere."""
        self._flows.clear()

    def flow(self) -> None:
        """Undo ``stall``."""
        self._flows.set()

    def hold_watches(self, paths: str) -> None:
        """Hold back what watches of *paths* (a regular expression) would show."""
        self._held_watches = re.compile(paths)
        self._watches_flow.clear()

    def free_watches(self) -> None:
        """Undo ``hold_watches``."""
        self._watches_flow.set()

    def heal(self) -> None:
        """The network works again, at once and for everybody."""
        self.delay_s = 0.0
        self.flow()
        self.free_watches()
        for hook in self._hooks:
            hook.pass_on()
        self._hooks.clear()

    def writes(self, since: int = 0) -> list[Call]:
        """Writes that the API server has carried out, from call number *since* on."""
        return [call for call in self.calls[since:] if call.is_write and 200 <= call.status < 300]

    # The way there and back.

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        call = Call(request.method, request.path, request.query_string, await request.read(), token)
        try:
            for hook in list(self._hooks):
                if not await self._meet(hook, call, Point.BEFORE, request):
                    raise Lost
            await self._delayed()
            return await (self._watch(request, call) if call.is_watch else self._forward(request, call))
        except (Lost, aiohttp.ClientError, ConnectionError, TimeoutError):
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=502)

    async def _meet(self, hook: Hook, call: Call, point: Point, request: web.BaseRequest) -> bool:
        if not hook.late:
            return await hook.meets(call, point)

        async def arrive() -> bool:
            passes = await hook.meets(call, point)
            if passes and call in hook.caught:
                await self._send(request, call)
                return False  # it has arrived, and its sender will never know
            return passes

        task = asyncio.create_task(arrive())
        self._late.add(task)
        task.add_done_callback(self._late.discard)
        return await asyncio.shield(task)

    async def _delayed(self) -> None:
        await self._flows.wait()
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
            await self._flows.wait()

    async def _forward(self, request: web.BaseRequest, call: Call) -> web.StreamResponse:
        status, headers, body = await self._send(request, call)
        for hook in list(self._hooks):
            if not await hook.meets(call, Point.AFTER):
                raise Lost
        await self._flows.wait()
        return web.Response(status=status, headers=headers, body=body)

    async def _send(self, request: web.BaseRequest, call: Call) -> tuple[int, dict[str, str], bytes]:
        self.calls.append(call)
        async with self._open(request, call) as answer:
            call.status = answer.status
            return answer.status, _end_to_end(answer.headers), await answer.read()

    async def _watch(self, request: web.BaseRequest, call: Call) -> web.StreamResponse:
        self.calls.append(call)
        async with self._open(request, call) as answer:
            call.status = answer.status
            response = web.StreamResponse(status=answer.status, headers=_end_to_end(answer.headers))
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await self._flows.wait()
                if self._held_watches.search(call.path):
                    await self._watches_flow.wait()
                await response.write(chunk)
            await response.write_eof()
            return response

    @contextlib.asynccontextmanager
    async def _open(self, request: web.BaseRequest, call: Call) -> AsyncIterator[aiohttp.ClientResponse]:
        assert self._session is not None
        url = URL(self._server + request.raw_path, encoded=True)
        async with self._session.request(
            call.method, url, data=call.body or None, headers=_end_to_end(request.headers), allow_redirects=False
        ) as answer:
            yield answer


def _end_to_end(headers: Any) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in HOP_BY_HOP}


class Front:
    """What a Service is to its pods: one address, behind it the first target that is ready.

    Connections to a target that is not ready any more are broken, so that their clients come back and find another.
    """

    def __init__(self, targets: Callable[[], list[int]]) -> None:
        self.port = 0
        self._targets = targets
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.StreamWriter, int] = {}

    async def start(self, port: int) -> None:
        """Listen on *port*."""
        self.port = port
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port)

    async def close(self) -> None:
        """Stop."""
        self.cut()
        if self._server is not None:
            self._server.close()

    def cut(self) -> None:
        """Break every connection that is open."""
        for writer in list(self._open):
            writer.transport.abort()

    def sweep(self) -> None:
        """Break the connections to targets that are not ready any more."""
        ready = set(self._targets())
        for writer, target in list(self._open.items()):
            if target not in ready:
                writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        targets = self._targets()
        if not targets:
            writer.transport.abort()
            return
        try:
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", targets[0])
        except OSError:
            writer.transport.abort()
            return
        self._open[writer] = self._open[there_writer] = targets[0]
        try:
            await asyncio.gather(_pump(reader, there_writer), _pump(there_reader, writer))
        finally:
            for end in (writer, there_writer):
                del self._open[end]
                end.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError, RuntimeError):  # uvloop's word for a connection that was cut
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()


async def until(wanted: Callable[[], Awaitable[bool]], what: str, *, timeout_s: float = 60.0) -> None:
    """Ask again and again until *wanted* says yes. Raises: TimeoutError, with *what*."""
    deadline_s = time.monotonic() + timeout_s
    while not await wanted():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"not after {timeout_s:g} s: {what}")
        await asyncio.sleep(0.1)
