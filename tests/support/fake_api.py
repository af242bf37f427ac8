"""An API server in one process: enough of the protocol for our client, and faults on demand.

It stores objects, gives versions, lists in pages, watches with history, patches by merge, and guards by UID and
version. ``fail`` makes the next matching requests go wrong in a chosen way. It knows nothing of schemas or admission:
those are tested on the real one (tests/rig).
"""

import asyncio
import copy
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import orjson
from aiohttp import web

Json = dict[str, Any]
MERGED_BY = {"conditions": "type", "schedulingGates": "name"}


class Fault(msgspec.Struct):
    """What goes wrong.

    ``apply``: the request is carried out first. Then ``status`` is answered (0: the true answer, if ``chunks`` is None
    too), ``chunks`` are written as a stream, and at the end ``hang`` keeps the connection open without a byte, ``cut``
    drops it.
    """

    status: int = 0
    message: str = ""
    headers: dict[str, str] = {}
    apply: bool = False
    chunks: list[bytes] | None = None
    hang: bool = False
    cut: bool = False


class _Planned(msgspec.Struct):
    method: str
    part: str
    fault: Fault
    times: int


class Target(msgspec.Struct, frozen=True):
    """What a path means: a collection, perhaps an object of it, perhaps a subresource."""

    collection: str
    namespace: str = ""
    name: str = ""
    sub: str = ""

    @property
    def key(self) -> str:
        """The key of the object in its collection."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def target_of(path: str) -> Target:
    """Read a path of the Kubernetes API."""
    parts = path.strip("/").split("/")
    size = 2 if parts[0] == "api" else 3
    prefix, rest = "/" + "/".join(parts[:size]), parts[size:]
    namespace = ""
    if not rest:  # discovery
        return Target(prefix)
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    return Target(f"{prefix}/{rest[0]}", namespace, *rest[1:3])


class FakeApi:
    """The server. Use ``running()`` for one that listens."""

    def __init__(self) -> None:
        self.url = ""
        self.token = ""
        self.version = 100
        self.compacted = 0
        self.objects: dict[str, dict[str, Json]] = {}
        self.requests: list[web.Request] = []
        self.bodies: list[bytes] = []
        self.missing: set[str] = set()
        self.history: list[tuple[int, str, str, Json]] = []
        self._planned: list[_Planned] = []
        self._watchers: list[tuple[str, asyncio.Queue[bytes | None]]] = []
        self._hung = asyncio.Event()
        self._uids = 0

    @classmethod
    @asynccontextmanager
    async def running(cls) -> AsyncIterator["FakeApi"]:
        """A server on a free port of this machine; everything it holds open ends with it."""
        api = cls()
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_route("*", "/{tail:.*}", api._answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        api.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield api
        finally:
            api._hung.set()
            api.end_watches()
            await runner.cleanup()

    # the world

    def put(self, collection: str, obj: Json) -> Json:
        """Create or change an object, as another client would."""
        meta = obj.setdefault("metadata", {})
        key = f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else meta["name"]
        store = self.objects.setdefault(collection, {})
        kind = "MODIFIED" if key in store else "ADDED"
        self._uids += 1
        meta.setdefault("uid", store[key]["metadata"]["uid"] if key in store else f"uid-{self._uids}")
        meta.setdefault("creationTimestamp", "2026-03-01T08:00:00Z")
        self._store(collection, key, obj, kind)
        return obj

    def remove(self, collection: str, key: str) -> None:
        """Delete an object, as another client would."""
        obj = self.objects[collection].pop(key)
        self._tell(collection, "DELETED", obj)

    def get(self, collection: str, key: str) -> Json:
        """The object as it is stored."""
        return self.objects[collection][key]

    def compact(self) -> None:
        """Forget the history: to resume from any version before now is answered with 410."""
        self.compacted, self.history = self.version, []

    def bookmark(self, collection: str) -> None:
        """Tell the watchers of *collection* how far they are."""
        self.version += 1
        line = {"type": "BOOKMARK", "object": {"kind": "X", "metadata": {"resourceVersion": str(self.version)}}}
        self._send(collection, orjson.dumps(line) + b"\n")

    def raw(self, collection: str, data: bytes) -> None:
        """Write *data* into the open watches of *collection* as one chunk."""
        self._send(collection, data)

    def end_watches(self) -> None:
        """End every open watch properly."""
        for _, queue in self._watchers:
            queue.put_nowait(None)

    def watching(self, collection: str) -> int:
        """How many watches of *collection* are open."""
        return sum(one == collection for one, _ in self._watchers)

    def fail(self, method: str, part: str, fault: Fault, *, times: int = 1) -> None:
        """Let the next *times* requests of *method* (also LIST, WATCH) whose path holds *part* go wrong."""
        self._planned.append(_Planned(method, part, fault, times))

    def count(self, method: str, part: str) -> int:
        """How many requests of *method* (also LIST, WATCH) came for paths that hold *part*."""
        return sum(_verb(request) == method and part in request.path for request in self.requests)

    # the protocol

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        body = await request.read()
        self.bodies.append(body)
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            return _status(401, "Unauthorized")
        fault = self._fault(_verb(request), request.path)
        if fault is None:
            return await self._serve(request, body)
        if fault.apply:
            await self._serve(request, body)
        if fault.chunks is not None:
            return await self._stream(request, fault)
        if fault.status:
            return _status(fault.status, fault.message, headers=fault.headers)
        if fault.hang:
            await self._hung.wait()
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    async def _stream(self, request: web.Request, fault: Fault) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in fault.chunks or ():
            await response.write(chunk)
        if fault.hang:
            await self._hung.wait()
        if fault.cut and request.transport is not None:
            request.transport.close()
        return response

    async def _serve(self, request: web.Request, body: bytes) -> web.StreamResponse:
        target = target_of(request.path)
        if target.collection in self.missing:
            return _status(404, "the server could not find the requested resource")
        verb = _verb(request)
        if verb == "LIST":
            return self._list(request, target)
        if verb == "WATCH":
            return await self._watch(request, target)
        if verb == "POST":
            return self._evict(target, body) if target.sub == "eviction" else self._create(target, body)
        obj = self.objects.get(target.collection, {}).get(target.key)
        if obj is None:
            return _status(404, f'{target.collection} "{target.name}" not found')
        if verb == "GET":
            return web.json_response(obj)
        if verb == "DELETE":
            self.remove(target.collection, target.key)
            return web.json_response({})
        return self._change(request, target, obj, orjson.loads(body))

    def _list(self, request: web.Request, target: Target) -> web.Response:
        version, start = self.version, 0
        if "continue" in request.query:
            at, offset = request.query["continue"].split(":")
            version, start = int(at), int(offset)
            if version < self.compacted:
                return _status(410, "The provided continue parameter is too old", reason="Expired")
        found = [
            _shown(request, obj)
            for key, obj in sorted(self.objects.get(target.collection, {}).items())
            if (not target.namespace or key.startswith(f"{target.namespace}/")) and _selected(request, obj)
        ]
        limit = int(request.query.get("limit", "0")) or len(found)
        meta = {"resourceVersion": str(version)}
        if start + limit < len(found):
            meta["continue"] = f"{version}:{start + limit}"
        items = found[start : start + limit] or None
        return web.json_response({"kind": "List", "metadata": meta, "items": items})

    async def _watch(self, request: web.Request, target: Target) -> web.StreamResponse:
        since = int(request.query.get("resourceVersion", "0"))
        if since < self.compacted:
            return _status(410, f"too old resource version: {since}", reason="Expired")
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        for version, collection, kind, obj in self.history:
            if version > since and collection == target.collection and _selected(request, obj):
                queue.put_nowait(_line(kind, _shown(request, obj)))
        entry = (target.collection, queue)
        self._watchers.append(entry)
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while (data := await queue.get()) is not None:
                await response.write(data)
        except ConnectionError:
            pass  # the client left
        finally:
            with suppress(ValueError):
                self._watchers.remove(entry)
        return response

    def _create(self, target: Target, body: bytes) -> web.Response:
        obj = orjson.loads(body)
        if target.namespace:
            obj["metadata"].setdefault("namespace", target.namespace)
        meta = obj["metadata"]
        key = f"{target.namespace}/{meta['name']}" if target.namespace else meta["name"]
        if key in self.objects.get(target.collection, {}):
            return _status(409, f'"{meta["name"]}" already exists', reason="AlreadyExists")
        return web.json_response(self.put(target.collection, obj), status=201)

    def _evict(self, target: Target, body: bytes) -> web.Response:
        pod = self.objects.get(target.collection, {}).get(target.key)
        if pod is None:
            return _status(404, f'pods "{target.name}" not found')
        wanted = orjson.loads(body).get("deleteOptions", {}).get("preconditions", {}).get("uid")
        refused = _uid_conflict(wanted, pod)
        if refused is None:
            self.remove(target.collection, target.key)
        return refused or _status(201, "evicted")

    def _change(self, request: web.Request, target: Target, obj: Json, patch: Json) -> web.Response:
        meta = patch.get("metadata", {})
        if meta.get("uid") not in (None, obj["metadata"]["uid"]):  # as seen on 1.36: 422, unlike for a DELETE
            return _status(422, f'"{target.name}" is invalid: metadata.uid: Invalid value: "x": field is immutable')
        if meta.get("resourceVersion") not in (None, obj["metadata"]["resourceVersion"]):
            return _status(409, f'Operation cannot be fulfilled on "{target.name}": the object has been modified')
        if target.sub == "status":
            patch = {"status": patch.get("status", {})}
        elif request.method == "PATCH":
            patch = {key: value for key, value in patch.items() if key != "status"}
        whole = request.method == "PUT"
        changed = patch if whole else _merged(copy.deepcopy(obj), patch, by_key="strategic" in request.content_type)
        changed["metadata"]["uid"] = obj["metadata"]["uid"]
        self._store(target.collection, target.key, changed, "MODIFIED")
        return web.json_response(_shown(request, changed))

    def _store(self, collection: str, key: str, obj: Json, kind: str) -> None:
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        self.objects.setdefault(collection, {})[key] = obj
        self._tell(collection, kind, obj, versioned=True)

    def _tell(self, collection: str, kind: str, obj: Json, *, versioned: bool = False) -> None:
        told = copy.deepcopy(obj)
        if not versioned:
            self.version += 1
            told["metadata"]["resourceVersion"] = str(self.version)
        self.history.append((self.version, collection, kind, told))
        self._send(collection, _line(kind, told))

    def _send(self, collection: str, data: bytes) -> None:
        for one, queue in self._watchers:
            if one == collection:
                queue.put_nowait(data)

    def _fault(self, verb: str, path: str) -> Fault | None:
        for planned in self._planned:
            if planned.method == verb and planned.part in path:
                planned.times -= 1
                if planned.times <= 0:
                    self._planned.remove(planned)
                return planned.fault
        return None


def _verb(request: web.Request) -> str:
    if request.method != "GET":
        return request.method
    if request.query.get("watch") == "1":
        return "WATCH"
    return "GET" if target_of(request.path).name else "LIST"


def _line(kind: str, obj: Json) -> bytes:
    return orjson.dumps({"type": kind, "object": obj}) + b"\n"


def _status(code: int, message: str, *, reason: str = "", headers: dict[str, str] | None = None) -> web.Response:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message}
    return web.json_response({**body, "reason": reason}, status=code, headers=headers)


def _uid_conflict(wanted: str | None, obj: Json) -> web.Response | None:
    real = obj["metadata"]["uid"]
    if wanted in (None, real):
        return None
    text = f"the UID in the precondition ({wanted}) does not match the UID in record ({real})"
    return _status(409, f"Operation cannot be fulfilled on Pod: {text}")


def _shown(request: web.Request, obj: Json) -> Json:
    partial = "as=PartialObjectMetadata" in request.headers.get("Accept", "")
    return {"kind": "PartialObjectMetadata", "metadata": obj["metadata"]} if partial else obj


def _selected(request: web.Request, obj: Json) -> bool:
    labels = obj["metadata"].get("labels") or {}
    wanted = [part.split("=", 1) for part in request.query.get("labelSelector", "").split(",") if part]
    return all(labels.get(key) == value for key, value in wanted)


def _merged(old: Json, patch: Json, *, by_key: bool) -> Json:
    """*old* with *patch* merged in; strategic (*by_key*) or as RFC 7386."""
    for name, value in patch.items():
        if value is None:
            old.pop(name, None)
        elif isinstance(value, dict) and isinstance(old.get(name), dict):
            old[name] = _merged(old[name], value, by_key=by_key)
        elif by_key and name in MERGED_BY and isinstance(value, list):
            old[name] = _merged_list(old.get(name) or [], value, MERGED_BY[name])
        else:
            old[name] = value
    return old


def _merged_list(old: list[Json], patch: list[Json], key: str) -> list[Json]:
    merged = {one[key]: one for one in old}
    for one in patch:
        if one.get("$patch") == "delete":
            merged.pop(one[key], None)
        else:
            merged[one[key]] = {**merged.get(one[key], {}), **one}
    return list(merged.values())


async def until(true: Callable[[], bool], *, within_s: float = 5.0) -> None:
    """Let the loop run until *true*; fails when it takes too long."""
    async with asyncio.timeout(within_s):
        while not true():  # noqa: ASYNC110 - what we wait for may be anything
            await asyncio.sleep(0.001)
