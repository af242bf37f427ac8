"""Keeps live TLS contexts on the newest certificate, without a restart and without touching open connections.

A context takes a certificate chain from files only, so it passes through a private one, which is gone at once.
"""

import asyncio
import random
import ssl
import tempfile
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Final

import structlog

from extender.certs.authority import not_after
from extender.certs.publish import Publisher
from extender.certs.sources import Material, Source
from extender.model.errors import ExtenderError, UserError, no_passphrase

POLL_S: Final = 60.0
RETRY_S: Final = 2.0

_log = structlog.get_logger(__name__)


def server_context(*, client_ca_file: str = "") -> ssl.SSLContext:
    """A context for a listener, still without a certificate. *client_ca_file*: clients must show one of that CA.

    Raises: UserError, when that file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if client_ca_file:
        try:
            context.load_verify_locations(client_ca_file)
        except (OSError, ssl.SSLError) as error:
            raise UserError(f"clientCAFile {client_ca_file}: {error}") from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class ClientTrust:
    """Trusts what is added to the file of client authorities, without a restart; what is taken out, until then."""

    def __init__(self, context: ssl.SSLContext, file: str) -> None:
        self._context = context
        self._file = Path(file)
        self._mtime_ns = self._file.stat().st_mtime_ns

    def follow(self) -> None:
        """Load the file again if it has changed. Raises: UserError, when it cannot be used."""
        try:
            mtime_ns = self._file.stat().st_mtime_ns
            if mtime_ns != self._mtime_ns:
                self._context.load_verify_locations(self._file)
                self._mtime_ns = mtime_ns
                _log.info("client_authorities_loaded", file=str(self._file))
        except (OSError, ssl.SSLError) as error:
            raise UserError(f"clientCAFile {self._file}: {error}") from error


class Keeper:
    """Loads from *source* into *contexts*, and publishes the bundle, at the start and about once a minute.

    *client_trust* is followed on the same occasions.
    """

    def __init__(
        self,
        source: Source,
        contexts: Iterable[ssl.SSLContext],
        *,
        now: Callable[[], datetime],
        publisher: Publisher | None = None,
        on_change: Callable[[float], None] | None = None,
        client_trust: ClientTrust | None = None,
    ) -> None:
        self._source = source
        self._contexts = tuple(contexts)
        self._now = now
        self._publisher = publisher
        self._on_change = on_change
        self._client_trust = client_trust
        self._loaded: Material | None = None

    @property
    def bundle(self) -> bytes:
        """The authorities that clients must trust; empty before the first load."""
        return self._loaded.bundle if self._loaded else b""

    def trouble(self) -> str:
        """Why nobody should connect, empty if all is well."""
        if self._loaded is None:
            return "no serving certificate yet"
        ended = not_after(self._loaded.serving.certificate)
        return f"the serving certificate ended at {ended.isoformat()}" if self._now() >= ended else ""

    async def refresh(self) -> None:
        """Load and publish once. Raises: ExtenderError; what was loaded before stays in use."""
        material = await self._source.load(self._now())
        if self._loaded is None or material.serving != self._loaded.serving:
            await asyncio.to_thread(self._use, material)
        self._loaded = material
        if self._publisher is not None and material.bundle:
            await self._publisher.publish(material.bundle)
        if self._client_trust is not None:
            await asyncio.to_thread(self._client_trust.follow)

    async def run(self, *, poll_s: float = POLL_S) -> None:
        """Refresh for ever. Trouble is logged and tried again soon."""
        while True:
            pause = poll_s
            try:
                await self.refresh()
            except ExtenderError as error:
                _log.warning("certificate_refresh_failed", error=str(error))
                pause = min(RETRY_S, poll_s)
            await asyncio.sleep(pause * random.uniform(0.75, 1.25))  # noqa: S311  jitter is no secret

    def _use(self, material: Material) -> None:
        with tempfile.TemporaryDirectory(prefix="cohort-extender-") as folder:
            path = Path(folder) / "serving.pem"
            path.touch(mode=0o600)
            path.write_bytes(material.serving.certificate + material.serving.key)
            try:
                for context in self._contexts:
                    context.load_cert_chain(path, password=no_passphrase)
            except ssl.SSLError as error:
                raise UserError(f"certificate and key do not belong together: {error}") from error
        ends = not_after(material.serving.certificate)
        _log.info("certificate_loaded", not_after=ends.isoformat())
        if self._on_change is not None:
            self._on_change(ends.timestamp())
