"""A lean client for load: bytes in, a status out, metadata alone asked back; and a watch that reads few fields."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from typing import Any, Self

import aiohttp
import msgspec

PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=1, application/json"
"""A create answers with the whole object all the same."""
STRATEGIC = "application/strategic-merge-patch+json"
JSON = "application/json"
REQUEST_S_MAX = 60.0
WATCH_S = 3600


class Metadata(msgspec.Struct, rename="camel", gc=False):
    """Who a pod is."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None
    deletion_timestamp: str = ""


class _Gate(msgspec.Struct, gc=False):
    name: str = ""


class _Spec(msgspec.Struct, rename="camel", gc=False):
    scheduling_gates: list[_Gate] | None = None
    node_name: str = ""


class _Status(msgspec.Struct, gc=False):
    phase: str = ""


class Seen(msgspec.Struct, gc=False):
    """A pod as a watch shows it."""

    metadata: Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def gated(self) -> bool:
        """Whether any gate holds it."""
        return bool(self.spec.scheduling_gates)


class Change(msgspec.Struct, gc=False):
    """One event of a watch."""

    type: str
    object: msgspec.Raw


class _ListMetadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _List(msgspec.Struct):
    metadata: _ListMetadata
    items: list[Seen] = []


_CHANGE = msgspec.json.Decoder(Change)
_SEEN = msgspec.json.Decoder(Seen)
_LIST = msgspec.json.Decoder(_List)


class RawError(RuntimeError):
    """The API server said no where it must not."""


class Raw:
    """Requests as the owner of the certificate in *tls* or of *token*, over at most *connections* connections."""

    def __init__(self, server: str, tls: ssl.SSLContext, *, token: str = "", connections: int = 64) -> None:
        self._server = server
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.watches = 0
        self._connector = aiohttp.TCPConnector(ssl=tls, limit=connections)

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=self._connector, timeout=aiohttp.ClientTimeout(total=REQUEST_S_MAX), headers=self._headers
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def send(self, method: str, path: str, body: bytes, *, kind: str = JSON, accept: str = PARTIAL) -> int:
        """Send; the status of the answer."""
        headers = {"Content-Type": kind, "Accept": accept}
        async with self._session.request(method, self._server + path, data=body, headers=headers) as answer:
            await answer.read()
            return answer.status

    async def must(self, method: str, path: str, body: bytes, *, kind: str = JSON, accept: str = PARTIAL) -> bytes:
        """Send; the body of the answer. Raises: RawError, when it is a refusal."""
        headers = {"Content-Type": kind, "Accept": accept}
        async with self._session.request(method, self._server + path, data=body, headers=headers) as answer:
            said = await answer.read()
            if answer.status >= 300:
                raise RawError(f"{method} {path}: {answer.status} {said[:500]!r}")
            return said

    async def version(self, path: str) -> str:
        """The version of the collection at *path* now."""
        return _LIST.decode(await self.must("GET", f"{path}?limit=1", b"", accept=JSON)).metadata.resource_version

    async def list(self, path: str) -> tuple[str, list[Seen]]:
        """The version of the collection at *path* now, and its pods."""
        found = _LIST.decode(await self.must("GET", path, b"", accept=JSON))
        return found.metadata.resource_version, found.items

    async def watch(self, path: str, version: str) -> AsyncIterator[tuple[str, Seen]]:
        """Changes of the pods at *path* after *version*, for ever.

        The API server closes a watch whose reader falls a few events behind; so it is resumed from the last event.
        Raises: RawError, when it cannot be.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_S_MAX)
        while True:
            query = f"?watch=true&resourceVersion={version}&timeoutSeconds={WATCH_S}"
            async with self._session.get(self._server + path + query, timeout=timeout) as answer:
                if answer.status != 200:
                    raise RawError(f"watch of {path}: {answer.status} {(await answer.read())[:500]!r}")
                self.watches += 1
                pending = b""
                async for chunk in answer.content.iter_any():
                    *lines, pending = (pending + chunk).split(b"\n")
                    for line in lines:
                        change = _CHANGE.decode(line)
                        if change.type == "ERROR":
                            raise RawError(f"watch of {path}: {bytes(change.object)[:500]!r}")
                        pod = _SEEN.decode(change.object)
                        version = pod.metadata.resource_version
                        yield change.type, pod


def queued_pod(
    name: str, *, queue: str, cpu: int, priority_class: str = "", annotations: dict[str, str] | None = None
) -> dict[str, Any]:
    """A small pod that names a queue; *cpu* in cores."""
    labels = {"kueue.x-k8s.io/priority-class": priority_class} if priority_class else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {"kueue.x-k8s.io/queue-name": queue, **(annotations or {})},
        },
        "spec": {
            "automountServiceAccountToken": False,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "busybox:1.37", "resources": {"requests": {"cpu": str(cpu)}}}],
        },
    }
