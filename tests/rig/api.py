"""A small client of the API server for tests: paths in, JSON out, watches instead of sleeps.

Deliberately not the product's client: a test must not share the mistakes of what it tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

import aiohttp
import orjson

Object = dict[str, Any]
Objects = list[Object]
T = TypeVar("T")

PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
FIELD_MANAGER = "rig"
PAGE = 2000
REQUEST_S_MAX = 30.0
RETRY_S = 0.2
GONE = 410


class ApiError(RuntimeError):
    """The API server said no: carries the status, its reason word and the whole answer."""

    def __init__(self, method: str, path: str, status: int, body: Any) -> None:
        self.status = status
        self.body = body
        self.reason = body.get("reason", "") if isinstance(body, dict) else ""
        said = body.get("message", body) if isinstance(body, dict) else body
        super().__init__(f"{method} {path}: {status} {said}")


class Api:
    """Requests as one user. Paths are absolute: `/api/v1/namespaces/lab/pods`."""

    def __init__(self, server: str, *, tls: ssl.SSLContext, token: str | None = None) -> None:
        self.server = server
        self._tls = tls
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def get(self, path: str, **params: str) -> Object:
        """One object, or any other JSON document."""
        result: Object = await self.request("GET", path, params=params)
        return result

    async def text(self, path: str) -> str:
        """A plain text answer, such as /metrics or /readyz."""
        return str(await self.request("GET", path, raw=True))

    async def list(self, path: str, **params: str) -> Objects:
        """All objects of a collection; `labelSelector`, `fieldSelector` may be given."""
        return (await self._pages(path, params))[0]

    async def create(self, path: str, body: Object) -> Object:
        """Create *body* in the collection, or post it to a subresource."""
        result: Object = await self.request("POST", path, body=body)
        return result

    async def replace(self, path: str, body: Object) -> Object:
        """Put *body* in the object's place."""
        result: Object = await self.request("PUT", path, body=body)
        return result

    async def patch(self, path: str, body: Any, kind: str = "merge", **params: str) -> Object:
        """Patch with *kind* merge, json, strategic or apply (server-side, forced)."""
        if kind == "apply":
            params = {"fieldManager": FIELD_MANAGER, "force": "true", **params}
        result: Object = await self.request("PATCH", path, body=body, params=params, content_type=PATCH_TYPES[kind])
        return result

    async def delete(self, path: str, *, grace_s: int | None = None, missing_ok: bool = False, **params: str) -> None:
        """Delete the object (or the collection); waits for nothing."""
        if grace_s is not None:
            params["gracePeriodSeconds"] = str(grace_s)
        try:
            await self.request("DELETE", path, params=params)
        except ApiError as error:
            if not (missing_ok and error.status == 404):
                raise

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        raw: bool = False,
    ) -> Any:
        """Any request; the decoded answer.

        Raises: ApiError from status 400 on; aiohttp.ClientError, TimeoutError when nobody answers.
        """
        headers = {"Content-Type": content_type, "Accept": "*/*" if raw else "application/json"}
        data = None if body is None else orjson.dumps(body)
        timeout = aiohttp.ClientTimeout(total=REQUEST_S_MAX)
        async with self._open().request(
            method, self.server + path, params=params, data=data, headers=headers, timeout=timeout
        ) as response:
            answer = _decode(await response.read(), raw=raw and response.status < 400)
            if response.status >= 400:
                raise ApiError(method, path, response.status, answer)
            return answer

    async def watch(
        self, path: str, *, resource_version: str, timeout_s: float = 60.0, **params: str
    ) -> AsyncGenerator[tuple[str, Object], None]:
        """Events of a collection after *resource_version*: (ADDED, MODIFIED, DELETED or BOOKMARK, object).

        Raises: ApiError, also for an ERROR event such as 410.
        """
        query = {
            **params,
            "watch": "true",
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(1, int(timeout_s) + 1)),
        }
        timeout = aiohttp.ClientTimeout(total=timeout_s, connect=REQUEST_S_MAX)
        async with self._open().get(self.server + path, params=query, timeout=timeout) as response:
            if response.status >= 400:
                raise ApiError("WATCH", path, response.status, _decode(await response.read()))
            pending = b""
            async for chunk in response.content.iter_any():
                *lines, pending = (pending + chunk).split(b"\n")
                for line in lines:
                    event = orjson.loads(line)
                    if event["type"] == "ERROR":
                        status = event["object"]
                        raise ApiError("WATCH", path, status.get("code", 500), status)
                    yield event["type"], event["object"]

    async def wait_for(
        self,
        path: str,
        predicate: Callable[[Objects], T],
        *,
        timeout_s: float = 30.0,
        what: str = "",
        **params: str,
    ) -> T:
        """Wait until *predicate* of all objects of the collection is true; what it returned.

        Watches, so it costs nothing while nothing changes, and survives a restart of the API server.

        Raises: TimeoutError, with *what* was awaited and the objects' names.
        """
        seen: dict[str, Object] = {}
        try:
            async with asyncio.timeout(timeout_s):
                return await self._wait(path, predicate, seen, params, timeout_s)
        except TimeoutError:
            names = ", ".join(sorted(seen)[:20]) or "none"
            wanted = what or getattr(predicate, "__name__", "predicate")
            raise TimeoutError(f"{path}: not after {timeout_s:g} s: {wanted}; {len(seen)} objects: {names}") from None

    async def _wait(
        self,
        path: str,
        predicate: Callable[[Objects], T],
        seen: dict[str, Object],
        params: Mapping[str, str],
        timeout_s: float,
    ) -> T:
        deadline_s = time.monotonic() + timeout_s
        while True:
            try:
                items, version = await self._pages(path, params)
                seen.clear()
                seen.update((_key(item), item) for item in items)
                if result := predicate(items):
                    return result
                left_s = deadline_s - time.monotonic()
                events = self.watch(path, resource_version=version, timeout_s=left_s, **params)
                async with contextlib.aclosing(events):
                    async for kind, item in events:
                        if kind == "BOOKMARK":
                            continue
                        if kind == "DELETED":
                            seen.pop(_key(item), None)
                        else:
                            seen[_key(item)] = item
                        if result := predicate(list(seen.values())):
                            return result
            except aiohttp.ClientError:
                await asyncio.sleep(RETRY_S)
            except ApiError as error:
                if error.status not in {GONE, 429} and error.status < 500:
                    raise
                await asyncio.sleep(RETRY_S)

    async def _pages(self, path: str, params: Mapping[str, str]) -> tuple[Objects, str]:
        items: Objects = []
        query = {**params, "limit": str(PAGE)}
        while True:
            page = await self.get(path, **query)
            items += page["items"]
            if not (token := page["metadata"].get("continue")):
                return items, page["metadata"]["resourceVersion"]
            query["continue"] = token

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(ssl=self._tls, limit=0)
            self._session = aiohttp.ClientSession(connector=connector, headers=self._headers)
        return self._session


def _decode(body: bytes, *, raw: bool = False) -> Any:
    if raw:
        return body.decode()
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return body.decode(errors="replace")


def _key(item: Object) -> str:
    metadata = item["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}".lstrip("/")
