"""Where the serving certificate comes from: one Secret that the replicas share, or files that somebody else keeps.

The Secret is read by the API, not by a mount, which would lag behind by a minute or two. Whoever finds it missing or
due writes it; create-if-absent and the resource version let the first writer win and the others read what it wrote.
"""

import asyncio
import base64
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol

import msgspec
import orjson

from extender.certs.authority import Pair, covers, is_due, is_pair, is_signed_by, issue, join, make_authority
from extender.model.errors import Conflict, Gone, TransientError, UserError

_ATTEMPTS_MAX: Final = 5
_CA_CERT, _CA_KEY, _CERT, _KEY = "ca.crt", "ca.key", "tls.crt", "tls.key"


class Api(Protocol):
    """What is asked of the API server. Raises: Gone for 404, Conflict for 409, others as they come."""

    async def get(self, path: str) -> bytes:
        """An object."""
        ...

    async def post(self, path: str, body: bytes) -> bytes:
        """Create an object."""
        ...

    async def put(self, path: str, body: bytes) -> bytes:
        """Replace an object of the version in *body*."""
        ...

    async def apply(self, path: str, body: bytes, *, field_manager: str) -> bytes:
        """Server-side apply, taking fields from others where they differ."""
        ...


class Material(msgspec.Struct, frozen=True):
    """What a server needs, and the bundle of authorities its clients must trust (empty: unknown)."""

    serving: Pair
    bundle: bytes


class Source(Protocol):
    """Gives the newest material; called again and again."""

    async def load(self, now: datetime) -> Material:
        """The material that holds at *now*. Raises: ExtenderError."""
        ...


class FileSource:
    """``tls.crt``, ``tls.key`` and, if there is one, ``ca.crt`` in a folder, as cert-manager and others write them."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    async def load(self, now: datetime) -> Material:
        """As the files are now. Raises: UserError, naming the file that cannot be read."""
        return await asyncio.to_thread(self._read)

    def _read(self) -> Material:
        try:
            pair = Pair((self._folder / _CERT).read_bytes(), (self._folder / _KEY).read_bytes())
            authority = self._folder / _CA_CERT
            return Material(pair, authority.read_bytes() if authority.exists() else b"")
        except OSError as error:
            raise UserError(f"{error.filename}: cannot be read ({error.strerror})") from error


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Secret(msgspec.Struct):
    metadata: _Meta
    data: dict[str, str] | None = None


class SecretSource:
    """A Secret of our own namespace that holds authority and serving certificate; made when absent, renewed when due.

    A new authority joins the bundle long before anything is signed with it: the serving certificate changes over when
    it is itself due, months later, and by then everybody trusts both.
    """

    def __init__(self, api: Api, *, namespace: str, name: str, names: Sequence[str]) -> None:
        self._api = api
        self._folder = f"/api/v1/namespaces/{namespace}/secrets"
        self._name = name
        self._names = list(names)

    async def load(self, now: datetime) -> Material:
        """The material in the Secret, written first if need be.

        Raises: TransientError, when others changed it each time we tried; whatever the API raises.
        """
        for _ in range(_ATTEMPTS_MAX):
            held, version = await self._read()
            wanted = await self._renewed(held, now)
            if wanted == held:
                return Material(Pair(held[_CERT], held[_KEY]), held[_CA_CERT])
            try:
                await self._write(wanted, version)
            except (Conflict, Gone):
                continue
            return Material(Pair(wanted[_CERT], wanted[_KEY]), wanted[_CA_CERT])
        raise TransientError(f"Secret {self._name} changed {_ATTEMPTS_MAX} times while it was to be written")

    async def _read(self) -> tuple[dict[str, bytes], str]:
        try:
            body = await self._api.get(f"{self._folder}/{self._name}")
        except Gone:
            return {}, ""
        secret = msgspec.json.decode(body, type=_Secret)
        data = {key: base64.b64decode(value) for key, value in (secret.data or {}).items()}
        return data, secret.metadata.resource_version

    async def _write(self, data: dict[str, bytes], version: str) -> None:
        metadata = {"name": self._name, "labels": {"app.kubernetes.io/name": "cohort-extender"}}
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "Opaque",
            "metadata": metadata | ({"resourceVersion": version} if version else {}),
            "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
        }
        if version:
            await self._api.put(f"{self._folder}/{self._name}", orjson.dumps(secret))
        else:
            await self._api.post(self._folder, orjson.dumps(secret))

    async def _renewed(self, held: dict[str, bytes], now: datetime) -> dict[str, bytes]:
        """What the Secret should hold. To check a key takes a millisecond, so others have the loop after each."""
        renewed = dict(held)
        leaf_is_usable = _usable(held, _CERT, _KEY)
        await asyncio.sleep(0)
        authority_is_usable = _usable(held, _CA_CERT, _CA_KEY)
        await asyncio.sleep(0)
        if not authority_is_usable:
            authority = make_authority(now)
            renewed |= {_CA_CERT: authority.certificate, _CA_KEY: authority.key}
        elif is_due(held[_CA_CERT], now):
            authority = make_authority(now)
            renewed |= {_CA_CERT: join(authority.certificate, held[_CA_CERT], now), _CA_KEY: authority.key}
        if not leaf_is_usable or self._leaf_is_due(renewed, now):
            leaf = issue(Pair(renewed[_CA_CERT], renewed[_CA_KEY]), self._names, now)
            renewed |= {_CERT: leaf.certificate, _KEY: leaf.key}
        return renewed

    def _leaf_is_due(self, held: dict[str, bytes], now: datetime) -> bool:
        leaf = held[_CERT]
        return is_due(leaf, now) or not covers(leaf, self._names) or not is_signed_by(leaf, held[_CA_CERT])


def _usable(held: dict[str, bytes], certificate: str, key: str) -> bool:
    return is_pair(held.get(certificate, b""), held.get(key, b""))
