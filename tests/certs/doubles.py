"""An API server that knows one Secret and two webhook configurations."""

from __future__ import annotations

import base64
from typing import Any

import orjson

from extender.model.errors import Conflict, Gone

SECRET = "/api/v1/namespaces/cohort-system/secrets/cohort-extender-certs"
HOOKS = "/apis/admissionregistration.k8s.io/v1"


class FakeApi:
    """Objects by path. ``interfere`` runs before each write, to play another replica."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.writes: list[tuple[str, str]] = []
        self.interfere: Any = lambda: None
        self._version = 0

    async def get(self, path: str) -> bytes:
        if path not in self.objects:
            raise Gone(f"{path}: 404")
        return orjson.dumps(self.objects[path])

    async def post(self, path: str, body: bytes) -> bytes:
        made = orjson.loads(body)
        target = f"{path}/{made['metadata']['name']}"
        self.interfere()
        if target in self.objects:
            raise Conflict(f"{target}: already exists")
        return self._store("POST", target, made)

    async def put(self, path: str, body: bytes) -> bytes:
        made = orjson.loads(body)
        self.interfere()
        if path not in self.objects:
            raise Gone(f"{path}: 404")
        if made["metadata"]["resourceVersion"] != self.objects[path]["metadata"]["resourceVersion"]:
            raise Conflict(f"{path}: changed")
        return self._store("PUT", path, made)

    async def apply(self, path: str, body: bytes, *, field_manager: str) -> bytes:
        patch = orjson.loads(body)
        assert field_manager
        found = self.objects[path]
        for hook in patch["webhooks"]:
            assert set(hook) == {"name", "clientConfig"}
            (mine,) = [other for other in found["webhooks"] if other["name"] == hook["name"]]
            mine["clientConfig"] |= hook["clientConfig"]
        return self._store("APPLY", path, found)

    def _store(self, verb: str, path: str, made: dict[str, Any]) -> bytes:
        self._version += 1
        made["metadata"]["resourceVersion"] = str(self._version)
        self.objects[path] = made
        self.writes.append((verb, path))
        return orjson.dumps(made)

    def secret(self) -> dict[str, bytes]:
        """What the Secret holds."""
        return {key: base64.b64decode(value) for key, value in self.objects[SECRET]["data"].items()}

    def add_hooks(self, kind: str, *names: str) -> dict[str, Any]:
        """A webhook configuration."""
        made = {
            "metadata": {"name": "cohort-extender"},
            "webhooks": [
                {"name": name, "clientConfig": {"service": {"name": "s", "namespace": "n"}}} for name in names
            ],
        }
        self.objects[f"{HOOKS}/{kind}/cohort-extender"] = made
        return made
