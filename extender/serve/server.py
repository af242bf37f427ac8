"""Three listeners in one process: the extender and the webhooks over TLS, health and metrics in plain.

Handlers are thin: they read the body within its limit and hand it to a sans-IO function, which never waits. The
low-level server of aiohttp is used with a table of static paths, because at 100 node names nine tenths of a call are
spent in the HTTP library. Source: python-k8s specification, section 4; webhooks specification, section 9.
"""

import asyncio
import logging
import os
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from extender.model.errors import UserError
from extender.serve.http import Reply, refuse
from extender.serve.metrics import CONTENT_TYPE, CallMeter, Metrics
from extender.turns import Turns

KEEPALIVE_S: Final = 125.0
"""Go keeps idle connections for 90 s and does not repeat a POST that a closing server cut off, so we close later."""
BODY_S_MAX: Final = 10.0
"""How long a body may take to arrive; the scheduler itself gives up after two seconds."""
CONNECTIONS_MAX: Final = 1024
"""Per listener. Schedulers and API servers hold a handful; the rest of the room is for those that come and go."""
_SHUTDOWN_S: Final = 5.0

_log = structlog.get_logger(__name__)


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether what aiohttp logs is our fault: what clients send or break off would fill the log at their will."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError | web.RequestPayloadError | ConnectionError)


_wire_log = logging.getLogger(__name__)
_wire_log.addFilter(_is_ours)

Answer = Callable[[bytes], Reply | Awaitable[Reply]]
"""Most answers wait for nothing; a long one lets others have the loop in between."""


class Health(Protocol):
    """What the probes ask. Each answer is empty if all is well, else the reason."""

    def live(self) -> str:
        """Why the process should be restarted."""
        ...

    def ready(self) -> str:
        """Why it should get no requests."""
        ...

    def dump(self) -> bytes:
        """The state as JSON, for people."""
        ...


class _Bounded(web.Server):
    """A server that turns away connections beyond a number, so that nobody can fill our memory with them."""

    def connection_made(self, handler: Any, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if len(self.connections) > CONNECTIONS_MAX:
            transport.abort()


class Listener:
    """One port: paths to functions, limits of size and time, with or without TLS."""

    def __init__(
        self, routes: Mapping[str, tuple[str, Answer, CallMeter]], *, body_max: int, body_s_max: float = BODY_S_MAX
    ) -> None:
        self.draining = False
        self._body_s_max = body_s_max
        self._routes = dict(routes)
        self._body_max = body_max
        self._runner: web.ServerRunner | None = None

    async def start(self, host: str | None, port: int, tls: ssl.SSLContext | None) -> int:
        """Listen; *port* 0 takes a free one. Answers the port. *host* None: all addresses."""
        # Nobody who asks us compresses: what claims to be is not unpacked, however small it looks and large it is.
        server = _Bounded(
            self._handle,
            request_factory=self._request,
            keepalive_timeout=KEEPALIVE_S,
            access_log=None,
            auto_decompress=False,
            logger=_wire_log,
        )
        runner = self._runner = web.ServerRunner(server, shutdown_timeout=_SHUTDOWN_S)
        await runner.setup()
        await web.TCPSite(runner, host, port, ssl_context=tls).start()
        return int(runner.addresses[0][1])

    async def stop(self) -> None:
        """Accept nothing more, finish what is being answered, close."""
        if self._runner is not None:
            await self._runner.cleanup()

    def _request(self, message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
        # Any: aiohttp keeps the types of this hook to itself. It is the low-level server's only way to a body limit.
        loop = asyncio.get_running_loop()
        return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=self._body_max)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        route = self._routes.get(request.path)
        if route is None:
            return self._respond(refuse(404, "no such path"))
        method, answer, meter = route
        if request.method != method:
            return self._respond(refuse(405, f"use {method}"))
        if request.content_length is not None and request.content_length > self._body_max:
            return self._respond(refuse(413, f"bodies are limited to {self._body_max} bytes"), close=True)
        try:
            body = await self._body(request) if method == "POST" else b""
        except TimeoutError:
            return self._respond(refuse(408, f"the body took more than {self._body_s_max:g} s"), close=True)
        begun = time.perf_counter()
        try:
            answered = answer(body)
            reply = answered if isinstance(answered, Reply) else await answered
        except Exception:
            _log.exception("request_failed", path=request.path)
            reply = refuse(500, "internal fault; see the log of cohort-extender")
        meter.count(reply.outcome, time.perf_counter() - begun)
        return self._respond(reply)

    async def _body(self, request: web.BaseRequest) -> bytes:
        if request.content.is_eof():
            return await request.read()
        async with asyncio.timeout(self._body_s_max):
            return await request.read()

    def _respond(self, reply: Reply, *, close: bool = False) -> web.Response:
        response = web.Response(body=reply.body, status=reply.status, headers={"Content-Type": reply.content_type})
        if close or self.draining:
            response.force_close()
        return response


class Server:
    """All listeners, and their way down: unready, serve on with ``Connection: close``, stop."""

    def __init__(
        self,
        *,
        extender: Mapping[str, Answer],
        webhooks: Mapping[str, Answer],
        health: Health,
        metrics: Metrics,
        body_max: Mapping[str, int],
        body_s_max: float = BODY_S_MAX,
        turns: Turns | None = None,
    ) -> None:
        self._turns = turns or Turns()
        self._health = health
        self._body_s_max = body_s_max
        self._metrics = metrics
        probes: dict[str, Answer] = {
            "/livez": self._live,
            "/healthz": self._live,
            "/readyz": self._ready,
            "/metrics": self._scrape,
            "/debug/dump": lambda _: Reply(200, health.dump(), "200"),
        }
        self._listeners = {
            "extender": self._listener("POST", extender, body_max["extender"]),
            "webhook": self._listener("POST", webhooks, body_max["webhook"]),
            "http": self._listener("GET", probes, 0),
        }
        self.ports: dict[str, int] = {}

    def _listener(self, method: str, answers: Mapping[str, Answer], body_max: int) -> Listener:
        routes = {
            path: (method, answer, self._metrics.calls(path.rsplit("/", 1)[1])) for path, answer in answers.items()
        }
        return Listener(routes, body_max=body_max, body_s_max=self._body_s_max)

    async def _scrape(self, _: bytes) -> Reply:
        left, text = self._metrics.parts(), list[bytes]()
        part: bytes | None = b""
        while part is not None:
            text.append(part)
            async with self._turns:
                part = next(left, None)
        return Reply(200, b"".join(text), "200", CONTENT_TYPE)

    def _live(self, _: bytes) -> Reply:
        return _probe(self._health.live())

    def _ready(self, _: bytes) -> Reply:
        return _probe("draining" if self._draining else self._health.ready())

    @property
    def _draining(self) -> bool:
        return self._listeners["http"].draining

    async def start(
        self, ports: Mapping[str, int], *, host: str | None = None, tls: Mapping[str, ssl.SSLContext | None]
    ) -> None:
        """Listen on *ports* (extender, webhook, http; 0: a free one, told in ``ports``).

        *tls* has a context for extender and webhook; None serves in plain, which is for benchmarks and tests.
        Raises: UserError, when an address is in use or not ours to take.
        """
        for name, listener in self._listeners.items():
            try:
                self.ports[name] = await listener.start(host, ports[name], tls.get(name))
            except OSError as error:
                cause = os.strerror(error.errno) if error.errno else str(error)
                raise UserError(
                    f"ports.{name}: cannot listen on {host or '*'} port {ports[name]} ({cause}); "
                    "end what listens there, or choose another port or bindAddress in the configuration file"
                ) from error

    async def drain(self, seconds: float) -> None:
        """Turn unready and answer on for *seconds*, telling each connection to close after its next answer.

        The Service takes that long to send nobody here any more.
        """
        for listener in self._listeners.values():
            listener.draining = True
        await asyncio.sleep(seconds)

    async def stop(self) -> None:
        """Close all listeners; health last, so that probes see the end of it."""
        for listener in self._listeners.values():
            await listener.stop()


def _probe(trouble: str) -> Reply:
    return refuse(503, trouble) if trouble else Reply(200, b"ok\n", "200", "text/plain; charset=utf-8")
