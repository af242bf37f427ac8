"""Tokens and certificates change while the service runs, and a scheduler that must show who it is."""

from __future__ import annotations

import asyncio
import base64
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from cryptography import x509

from extender.certs.authority import Pair, issue
from tests.e2e.installation import NAMESPACE, SECRET, Installation
from tests.faults.auditor import Auditor
from tests.faults.lab import LEFT, POOLS, Lab, Object, objects, pod, pods_path
from tests.faults.proxy import until
from tests.faults.scenes import running
from tests.rig import Rig
from tests.rig.pki import Authority

pytestmark = [pytest.mark.rig, pytest.mark.timeout(420)]

CERTIFICATES = f"{SECRET}/cohort-extender-certs"
TOKEN_CACHE_S = 12.0
"""The API server believes a token for 10 s after it has looked at it."""
KEEPER_S_MAX = 120.0
"""The keeper looks about once a minute."""


async def give_mortal_tokens(lab: Lab, secret: str) -> None:
    """Give both replicas tokens that die with *secret*, and wait until they use them."""
    made = await lab.rig.api.create(
        SECRET, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret, "namespace": NAMESPACE}}
    )
    bound = {"apiVersion": "v1", "kind": "Secret", "name": secret, "uid": made["metadata"]["uid"]}
    given = {replica.name: await lab.rotate(replica, bound) for replica in lab.replicas}

    async def used() -> bool:
        return all(lab.proxies[name].calls[-1].token == token for name, token in given.items())

    await until(used, "the new tokens are used")


async def give_lasting_tokens(lab: Lab) -> None:
    """Give both replicas tokens that are bound to their pods again."""
    for pod_of in await lab.rig.api.list(pods_path(NAMESPACE)):
        for replica in lab.replicas:
            if replica.name == pod_of["metadata"]["name"]:
                bound = {"apiVersion": "v1", "kind": "Pod", "name": replica.name, "uid": pod_of["metadata"]["uid"]}
                await lab.rotate(replica, bound)


@pytest.mark.slow
async def test_a_rotated_token_is_used_without_a_restart(faulty: Lab, auditor: Auditor):
    await give_mortal_tokens(faulty, "doomed")
    doomed = set(faulty.tokens.values())
    leader = await faulty.leader()
    pids = [faulty.process(replica).pid for replica in faulty.replicas]
    await give_lasting_tokens(faulty)
    await faulty.rig.api.delete(f"{SECRET}/doomed")
    await asyncio.sleep(TOKEN_CACHE_S)
    await faulty.submit(LEFT, pod("p"))
    await faulty.pods_are(LEFT, lambda pods: running(pods) == ["p"], "the pod runs")

    assert not doomed & {call.token for call in faulty.proxy(leader).calls[-5:]}
    assert [faulty.process(replica).pid for replica in faulty.replicas] == pids
    assert await faulty.leads(leader)


async def test_a_token_that_died_stops_the_work_until_there_is_another(faulty: Lab, auditor: Auditor):
    await give_mortal_tokens(faulty, "dead")
    leader = await faulty.leader()
    await faulty.rig.api.delete(f"{SECRET}/dead")

    async def refused() -> bool:
        return any(call.status == 401 for call in faulty.proxy(leader).calls[-5:])

    await until(refused, "the token is refused")
    await faulty.submit(LEFT, pod("p"))
    await give_lasting_tokens(faulty)
    await faulty.pods_are(LEFT, lambda pods: running(pods) == ["p"], "the pod runs")

    assert auditor.violations == []


@pytest.mark.slow
async def test_a_renewed_serving_certificate_is_used_without_a_restart(faulty: Lab, auditor: Auditor):
    secret = await faulty.rig.api.get(CERTIFICATES)
    held = {key: base64.b64decode(value) for key, value in secret["data"].items()}
    names = ["cohort-extender", f"cohort-extender.{NAMESPACE}.svc", *_names(held["tls.crt"])]
    leaf = issue(Pair(held["ca.crt"], held["ca.key"]), list(dict.fromkeys(names)), datetime.now(UTC))
    pids = [faulty.process(replica).pid for replica in faulty.replicas]
    data = {"tls.crt": base64.b64encode(leaf.certificate).decode(), "tls.key": base64.b64encode(leaf.key).decode()}
    await faulty.rig.api.patch(CERTIFICATES, {"data": data})

    want = x509.load_pem_x509_certificate(leaf.certificate).serial_number
    trusted = ssl.create_default_context(cadata=held["ca.crt"].decode())
    for replica in faulty.replicas:
        for port in (replica.extender, replica.webhook):
            await until(_shows(port, want, trusted), "the new certificate is shown", timeout_s=KEEPER_S_MAX)
    await faulty.submit(LEFT, pod("p"))
    await faulty.pods_are(LEFT, lambda pods: running(pods) == ["p"], "the pod runs")
    assert [faulty.process(replica).pid for replica in faulty.replicas] == pids


@pytest.mark.slow
async def test_a_secret_that_is_deleted_is_made_anew_and_the_webhooks_trust_it(faulty: Lab, auditor: Auditor):
    await faulty.rig.api.delete(CERTIFICATES)
    made: list[Object] = []

    async def is_made() -> bool:
        made[:] = [found for found in await faulty.rig.api.list(SECRET) if found["metadata"]["name"].endswith("-certs")]
        return bool(made)

    await until(is_made, "the Secret is made anew", timeout_s=KEEPER_S_MAX)
    authority = base64.b64decode(made[0]["data"]["ca.crt"])
    serial = x509.load_pem_x509_certificate(base64.b64decode(made[0]["data"]["tls.crt"])).serial_number
    trusted = ssl.create_default_context(cadata=authority.decode())
    for replica in faulty.replicas:
        await until(_shows(replica.webhook, serial, trusted), "the new certificate", timeout_s=KEEPER_S_MAX)
    await faulty.rig.wait_for(
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
        lambda found: all(
            base64.b64decode(hook["clientConfig"].get("caBundle", "")) == authority
            for one in found
            if one["metadata"]["name"] == "cohort-extender"
            for hook in one["webhooks"]
        ),
        what="the new CA in the webhooks",
    )


def _names(certificate: bytes) -> list[str]:
    found = x509.load_pem_x509_certificate(certificate).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    dns = found.value.get_values_for_type(x509.DNSName)
    return [*dns, *map(str, found.value.get_values_for_type(x509.IPAddress))]


def _shows(port: int, serial: int, trusted: ssl.SSLContext) -> Any:
    async def shows() -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusted)
        except ssl.SSLError:
            return False
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        return x509.load_der_x509_certificate(shown).serial_number == serial

    return shows


class Mutual(Installation):
    """The installation with a scheduler that shows a certificate of the rig's CA, without which nobody may ask."""

    def __init__(self, rig: Rig) -> None:
        super().__init__(rig, settings={"tls": {"names": ["127.0.0.1"], "clientCAFile": str(rig.ca.cert)}})

    async def _scheduler_config(self) -> str:
        config = yaml.safe_load(await super()._scheduler_config())
        pair = self.rig.ca.client("scheduler-of-the-extender")
        for extender in config["extenders"]:
            extender["tlsConfig"] |= {"certFile": str(pair.cert), "keyFile": str(pair.key)}
        return yaml.safe_dump(config)


async def test_with_mtls_a_scheduler_with_a_certificate_is_answered_and_nobody_else():
    async with Rig(nodes=POOLS, scheduler=False) as rig:
        mutual = Mutual(rig)
        await mutual.install()
        await rig.kubectl("apply", "--server-side", "-f", "-", input=yaml.safe_dump_all(objects()))
        await rig.api.create(pods_path(LEFT), pod("p"))
        await rig.wait_for(pods_path(LEFT), lambda pods: running(pods) == ["p"], timeout_s=60, what="the pod runs")
        url = f"https://127.0.0.1:{mutual.extender_port}/scheduler/filter"
        answers = [
            await _asks(url, certificate)
            for certificate in (None, _stranger(rig.directory), rig.ca.client("scheduler-of-the-extender"))
        ]

    assert answers == [False, False, True]


def _stranger(directory: Path) -> Any:
    (directory / "strangers").mkdir()
    return Authority(directory / "strangers").client("scheduler-of-the-extender")


async def _asks(url: str, pair: Any) -> bool:
    """Whether a client with the certificate *pair* gets an answer of any kind."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if pair is not None:
        context.load_cert_chain(pair.cert, pair.key)
    body = {"Pod": {"metadata": {"name": "p", "namespace": LEFT, "uid": "u"}}, "NodeNames": []}
    try:
        async with aiohttp.ClientSession() as session, session.post(url, json=body, ssl=context) as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False
