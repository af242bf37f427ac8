"""Tells the API server whom to trust: the bundle goes into ``caBundle`` of each webhook by server-side apply.

Only the name and the bundle of each webhook are listed, so whoever owns the rest of the configuration (kubectl, Helm,
GitOps) goes on owning it and need not know the bundle.
"""

import base64
from collections.abc import Sequence
from typing import Final

import msgspec
import orjson

from extender.certs.sources import Api
from extender.model.errors import Gone

FIELD_MANAGER: Final = "cohort-extender-certs"
_GROUP: Final = "/apis/admissionregistration.k8s.io/v1"
_KINDS: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


class _ClientConfig(msgspec.Struct, rename="camel", frozen=True):
    ca_bundle: str = ""


class _Hook(msgspec.Struct, rename="camel"):
    name: str
    client_config: _ClientConfig = _ClientConfig()


class _Configuration(msgspec.Struct):
    webhooks: list[_Hook] | None = None


class Publisher:
    """Keeps the bundle in the two webhook configurations called *name*."""

    def __init__(self, api: Api, *, name: str = "cohort-extender", kinds: Sequence[str] = _KINDS) -> None:
        self._api = api
        self._name = name
        self._kinds = tuple(kinds)

    async def publish(self, bundle: bytes) -> int:
        """Write *bundle* where it differs; how many configurations were written. One that is absent is passed over."""
        written = 0
        text = base64.b64encode(bundle).decode()
        for kind in self._kinds:
            path = f"{_GROUP}/{kind.lower()}s/{self._name}"
            try:
                found = msgspec.json.decode(await self._api.get(path), type=_Configuration)
            except Gone:
                continue
            hooks = found.webhooks or []
            if hooks and any(hook.client_config.ca_bundle != text for hook in hooks):
                await self._api.apply(path, self._patch(kind, hooks, text), field_manager=FIELD_MANAGER)
                written += 1
        return written

    def _patch(self, kind: str, hooks: list[_Hook], text: str) -> bytes:
        return orjson.dumps(
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": kind,
                "metadata": {"name": self._name},
                "webhooks": [{"name": hook.name, "clientConfig": {"caBundle": text}} for hook in hooks],
            }
        )
