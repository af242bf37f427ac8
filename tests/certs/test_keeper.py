"""Live contexts: a new certificate reaches new connections, old ones go on, trouble is survived."""

import asyncio
import base64
import os
import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives import serialization

from extender.certs.authority import Pair, issue, make_authority
from extender.certs.keeper import ClientTrust, Keeper, server_context
from extender.certs.publish import Publisher
from extender.certs.sources import Material
from extender.model.errors import TransientError, UserError
from tests.certs.doubles import FakeApi

NOW = datetime.now(UTC)
AUTHORITY = make_authority(NOW)


def material(life=timedelta(days=90)):
    return Material(issue(AUTHORITY, ["127.0.0.1"], NOW, life=life), AUTHORITY.certificate)


class FakeSource:
    """Gives what it holds; raises it, if it is an error."""

    def __init__(self, *held):
        self.held = list(held)

    async def load(self, now):
        found = self.held[0] if len(self.held) == 1 else self.held.pop(0)
        if isinstance(found, Exception):
            raise found
        return found


def keeper(source, contexts=(), now=NOW, **kwargs):
    return Keeper(source, contexts, now=lambda: now, **kwargs)


async def serial(port):
    trusting = ssl.create_default_context(cadata=AUTHORITY.certificate.decode())
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
    found = writer.get_extra_info("ssl_object").getpeercert()["serialNumber"]
    return found, reader, writer


async def test_a_new_certificate_reaches_new_connections_and_old_ones_go_on():
    async def echo(reader, writer):
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    source = FakeSource(material(), material())
    context = server_context()
    kept = keeper(source, [context])
    await kept.refresh()
    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]

    first, reader, writer = await serial(port)
    await kept.refresh()
    second, _, other = await serial(port)
    writer.write(b"still here\n")
    answer = await reader.readline()

    for used in (writer, other):
        used.close()
    server.close()
    await server.wait_closed()
    assert first != second
    assert answer == b"still here\n"


async def test_the_same_material_is_not_loaded_again():
    seen = []
    kept = keeper(FakeSource(material()), on_change=seen.append)

    await kept.refresh()
    await kept.refresh()

    assert seen == [pytest.approx((NOW + timedelta(days=90)).timestamp(), abs=1)]


async def test_trouble_is_told_before_the_first_load_and_after_the_end():
    fresh = keeper(FakeSource(material()))
    before = fresh.trouble()
    await fresh.refresh()
    ended = keeper(FakeSource(material(timedelta(days=1))), now=NOW + timedelta(days=2))
    await ended.refresh()

    assert before == "no serving certificate yet"
    assert fresh.trouble() == ""
    assert ended.trouble().startswith("the serving certificate ended at ")


async def test_a_failed_refresh_keeps_what_was_loaded_and_is_tried_again():
    source = FakeSource(material(), TransientError("API server away"), material())
    again = asyncio.Event()
    changes = []

    def changed(not_after_s):
        changes.append(not_after_s)
        if len(changes) == 2:
            again.set()

    kept = keeper(source, on_change=changed)
    task = asyncio.create_task(kept.run(poll_s=0.001))
    await again.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert kept.trouble() == ""
    assert kept.bundle == AUTHORITY.certificate


async def test_a_certificate_with_a_strange_key_is_refused():
    own, other = material(), material()
    mixed = Material(Pair(own.serving.certificate, other.serving.key), own.bundle)

    with pytest.raises(UserError, match="do not belong together"):
        await keeper(FakeSource(mixed), [server_context()]).refresh()


async def test_an_encrypted_key_is_refused_instead_of_asking_a_terminal():
    own = material()
    secret = serialization.BestAvailableEncryption(b"secret")
    key = serialization.load_pem_private_key(own.serving.key, None)
    locked = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret)
    mixed = Material(Pair(own.serving.certificate, locked), own.bundle)

    with pytest.raises(UserError, match="store it without one"):
        await keeper(FakeSource(mixed), [server_context()]).refresh()


def test_a_listener_speaks_http_1_over_modern_tls_only():
    context = server_context()

    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.verify_mode == ssl.CERT_NONE


def test_a_client_ca_that_cannot_be_read_is_named():
    with pytest.raises(UserError, match=r"clientCAFile /nowhere/ca\.crt"):
        server_context(client_ca_file="/nowhere/ca.crt")


async def test_a_client_authority_that_is_added_is_trusted_without_a_restart(tmp_path):
    file = tmp_path / "ca.crt"
    file.write_bytes(AUTHORITY.certificate)
    context = server_context(client_ca_file=str(file))
    kept = keeper(FakeSource(material()), [context], client_trust=ClientTrust(context, str(file)))
    await kept.refresh()
    before = len(context.get_ca_certs())
    file.write_bytes(AUTHORITY.certificate + make_authority(NOW).certificate)
    os.utime(file, ns=(1, 1))  # however coarse the clock of the file system is
    await kept.refresh()

    assert (before, len(context.get_ca_certs())) == (1, 2)


async def test_client_authorities_that_cannot_be_used_are_told_and_the_old_ones_stay(tmp_path):
    file = tmp_path / "ca.crt"
    file.write_bytes(AUTHORITY.certificate)
    context = server_context(client_ca_file=str(file))
    kept = keeper(FakeSource(material()), [context], client_trust=ClientTrust(context, str(file)))
    file.write_text("no certificate")
    os.utime(file, ns=(1, 1))

    with pytest.raises(UserError, match="clientCAFile"):
        await kept.refresh()
    assert len(context.get_ca_certs()) == 1


async def test_a_bundle_is_published_after_each_load():
    api = FakeApi()
    (hook,) = api.add_hooks("mutatingwebhookconfigurations", "a.example.com")["webhooks"]

    await keeper(FakeSource(material()), publisher=Publisher(api)).refresh()

    assert base64.b64decode(hook["clientConfig"]["caBundle"]) == AUTHORITY.certificate
