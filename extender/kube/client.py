"""HTTP to the API server: credentials, limits in time and size, and errors as exceptions of the model.

Every request ends: with an answer, an error of ``extender.model.errors`` or, after its time, ``Unreachable``. Nothing
is repeated here but one request after a 401, with the token read again; what to do next is the caller's to decide.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import aiohttp
import msgspec
from yarl import URL

from extender.kube.answers import error_of, no_answer
from extender.kube.config import ClusterConfig, is_token, tls_context
from extender.kube.lines import Lines
from extender.kube.one_by_one import OneByOne
from extender.model.errors import UNREADABLE, ExtenderError, Unreachable, UserError
from extender.turns import Turns

REQUEST_TIMEOUT_S: Final = 10.0
LIST_TIMEOUT_S: Final = 60.0
CONNECT_TIMEOUT_S: Final = 5.0
OPEN_TIMEOUT_S: Final = 30.0
CONNECTIONS_MAX: Final = 100
ANSWER_BYTES_MAX: Final = 256 * 2**20
LINE_BYTES_MAX: Final = 8 * 2**20
KEEPALIVE_S: Final = 15
USER_TIMEOUT_MS: Final = 30_000
PAGE_ITEMS: Final = 500
PAGE_BYTES: Final = 2**20
"""What a page should not exceed: to cut so much into its items takes a millisecond."""
PAGE_ITEMS_FIRST: Final = 100
PAGE_ITEMS_MIN: Final = 20

PARTIAL: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
PARTIAL_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class PatchType(StrEnum):
    """The content types of a PATCH."""

    STRATEGIC = "application/strategic-merge-patch+json"
    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    APPLY = "application/apply-patch+yaml"


class _PageMeta(msgspec.Struct):
    resourceVersion: str | None = None  # noqa: N815 - the API's name
    continue_: str | None = msgspec.field(default=None, name="continue")


class _PageWire(msgspec.Struct):
    metadata: _PageMeta | None = None
    items: list[msgspec.Raw] | None = None


class Page(msgspec.Struct, frozen=True):
    """One page of a list: raw objects, and the version of the list as a whole."""

    items: list[msgspec.Raw]
    resource_version: str


_PAGE = msgspec.json.Decoder(_PageWire)


def _keepalive_socket(address: tuple[int, int, int, str, tuple[object, ...]]) -> socket.socket:
    """A socket on which a dead peer is noticed: idle (keep-alive) and with data in flight (user time-out)."""
    family, kind, protocol = address[:3]
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_S),
        ("TCP_KEEPINTVL", KEEPALIVE_S),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", USER_TIMEOUT_MS),
    ):
        if hasattr(socket, option):  # Linux has them all; others keep their defaults
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made


class ApiClient:
    """A client of one API server. Open it on the loop that uses it; ``close`` it at the end."""

    def __init__(
        self,
        config: ClusterConfig,
        *,
        user_agent: str = "cohort-extender",
        timeout_s: float = REQUEST_TIMEOUT_S,
        connections_max: int = CONNECTIONS_MAX,
        turns: Turns | None = None,
    ) -> None:
        self.namespace = config.namespace
        self._turns = turns or Turns()
        self._config = config
        self._timeout_s = timeout_s
        self._tls = tls_context(config)
        self._token = config.token
        self._token_mtime_ns = self._ca_mtime_ns = -1
        self._base = config.server.rstrip("/")
        self._session = aiohttp.ClientSession(
            connector=OneByOne(
                limit=connections_max,
                ssl=self._tls if self._tls is not None else True,
                socket_factory=_keepalive_socket,
                keepalive_timeout=60,
            ),
            headers={"User-Agent": user_agent, "Accept-Encoding": "identity"},
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=None),
        )

    async def close(self) -> None:
        """Close every connection; requests in flight end as ``Unreachable``."""
        await self._session.close()

    async def get(
        self,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        accept: str = "",
        timeout_s: float | None = None,
    ) -> bytes:
        """The body of *path*. Raises: as ``error_of``; Unreachable after the time limit."""
        return await self._request("GET", path, params=params, accept=accept, timeout_s=timeout_s)

    async def post(self, path: str, body: bytes, *, timeout_s: float | None = None) -> bytes:
        """Create an object or a subresource."""
        return await self._request("POST", path, body=body, timeout_s=timeout_s)

    async def put(self, path: str, body: bytes, *, timeout_s: float | None = None) -> bytes:
        """Replace an object; the version in *body* guards it."""
        return await self._request("PUT", path, body=body, timeout_s=timeout_s)

    async def delete(self, path: str, body: bytes | None = None) -> bytes:
        """Delete an object; *body* holds DeleteOptions."""
        return await self._request("DELETE", path, body=body)

    async def patch(
        self,
        path: str,
        body: bytes,
        *,
        kind: PatchType,
        field_manager: str = "",
        force: bool = False,
        partial: bool = False,
        timeout_s: float | None = None,
    ) -> bytes:
        """PATCH *path*. ``partial``: metadata alone in the answer. ``force``: take fields from other managers."""
        params = {"fieldManager": field_manager} if field_manager else {}
        if force:
            params["force"] = "true"
        return await self._request(
            "PATCH",
            path,
            body=body,
            params=params,
            content_type=kind.value,
            accept=PARTIAL if partial else "",
            timeout_s=timeout_s,
        )

    async def pages(
        self, path: str, *, params: Mapping[str, str] | None = None, accept: str = "", limit: int = PAGE_ITEMS
    ) -> AsyncIterator[Page]:
        """The list at *path*, page by page, of *limit* items at most; 0 asks for it whole.

        A page is as long as the items of the one before allow, so that to cut it never holds the loop for long. Raises:
        Gone, when the list expired on the way: start over.
        """
        more: str | None = ""
        size = min(limit, PAGE_ITEMS_FIRST)
        while more is not None:
            asked = dict(params or {})
            if size:
                asked["limit"] = str(size)
            if more:
                asked["continue"] = more
            body = await self._request("GET", path, params=asked, accept=accept, timeout_s=LIST_TIMEOUT_S)
            try:
                async with self._turns:
                    page = _PAGE.decode(body)
            except UNREADABLE as error:
                raise Unreachable(f"GET {path}: the answer is not a list") from error
            meta, items = page.metadata or _PageMeta(), page.items or []
            size = min(limit, max(PAGE_ITEMS_MIN, len(items) * PAGE_BYTES // len(body)))
            yield Page(items, meta.resourceVersion or "")
            more = meta.continue_ or None

    @asynccontextmanager
    async def watch(
        self, path: str, *, params: Mapping[str, str] | None = None, accept: str = "", silence_s: float
    ) -> AsyncGenerator[AsyncIterator[list[bytes]], None]:
        """A watch on *path*: batches of whole lines, as they come.

        The iterator ends when the server ends the stream (a line cut short is dropped) and raises Unreachable after
        *silence_s* without a byte, or when the connection breaks.
        """
        asked = f"WATCH {path}"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=silence_s)
        try:
            async with asyncio.timeout(OPEN_TIMEOUT_S):
                response = await self._open("GET", path, params=params, accept=accept, timeout=timeout)
                if response.status != 200:
                    async with response:
                        raise await self._refusal(response, asked)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise no_answer(asked, error, server=self._base) from error
        try:
            yield self._lines(response, asked)
        finally:
            response.close()

    async def _lines(self, response: aiohttp.ClientResponse, asked: str) -> AsyncIterator[list[bytes]]:
        lines = Lines(LINE_BYTES_MAX)
        try:
            async for chunk in response.content.iter_any():
                yield lines.feed(chunk)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise no_answer(asked, error, server=self._base) from error

    async def _request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        params: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        accept: str = "",
        timeout_s: float | None = None,
    ) -> bytes:
        asked = f"{method} {path}"
        try:
            async with asyncio.timeout(timeout_s if timeout_s is not None else self._timeout_s):
                response = await self._open(
                    method, path, params=params, accept=accept, body=body, content_type=content_type
                )
                async with response:
                    if response.status >= 300:
                        raise await self._refusal(response, asked)
                    return await _read(response, asked)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise no_answer(asked, error, server=self._base) from error

    async def _open(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None,
        accept: str,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: aiohttp.ClientTimeout | None = None,  # noqa: ASYNC109 - aiohttp's own, per socket operation
    ) -> aiohttp.ClientResponse:
        """Send the request, and once more with fresh credentials if the first answer is 401."""
        url = URL(self._base + path + (f"?{urlencode(params)}" if params else ""), encoded=True)
        for attempt in (1, 2):
            headers = {"Accept": accept or "application/json"}
            if body is not None:
                headers["Content-Type"] = content_type
            token = await self._bearer(fresh=attempt == 2)
            if token:
                headers["Authorization"] = f"Bearer {token}"
            response = await self._session.request(
                method,
                url,
                data=body,
                headers=headers,
                allow_redirects=False,
                timeout=timeout or aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
                server_hostname=self._config.server_name or None,
            )
            if response.status != 401 or attempt == 2:
                return response
            response.close()
        raise AssertionError("the second attempt returns")

    async def _refusal(self, response: aiohttp.ClientResponse, asked: str) -> ExtenderError:
        body = await _read(response, asked)
        return error_of(response.status, body, response.headers, asked=asked)

    async def _bearer(self, *, fresh: bool) -> str:
        """The token to send: the file's when it changed, the plug-in's at first and when *fresh*."""
        self._follow_ca()
        config = self._config
        if config.token_file:
            path = Path(config.token_file)  # kubelet's small tmpfs file: reading it does not hold the loop
            try:
                mtime_ns = path.stat().st_mtime_ns  # noqa: ASYNC240 - see above
                if fresh or mtime_ns != self._token_mtime_ns:
                    self._token = _token_in(path)
                    self._token_mtime_ns = mtime_ns
            except (OSError, ValueError) as error:
                if not self._token:
                    why = error.strerror if isinstance(error, OSError) else "it holds no token"
                    raise UserError(f"the token file {path} cannot be read: {why}") from error
        elif config.token_loader is not None and (fresh or not self._token):
            self._token = await config.token_loader()
        return self._token

    def _follow_ca(self) -> None:
        """Trust a CA bundle that was replaced while we run; the old one stays trusted until a restart."""
        if self._tls is None or not self._config.ca_file:
            return
        try:
            mtime_ns = Path(self._config.ca_file).stat().st_mtime_ns
            if self._ca_mtime_ns not in (-1, mtime_ns):
                self._tls.load_verify_locations(cafile=self._config.ca_file)
            self._ca_mtime_ns = mtime_ns
        except OSError:
            return  # half-written or gone: what was loaded still holds


def _token_in(path: Path) -> str:
    """The token in the file. Raises: OSError; ValueError, when that cannot be one."""
    token = path.read_text().strip()
    if not token or not is_token(token):
        raise ValueError("no token")
    return token


async def _read(response: aiohttp.ClientResponse, asked: str) -> bytes:
    if (response.content_length or 0) > ANSWER_BYTES_MAX:
        raise Unreachable(f"{asked}: the answer is larger than {ANSWER_BYTES_MAX} bytes")
    return await response.read()
