"""The webhook configurations on a real API server: about which pods it calls us, and what it does when we are away.

The webhooks are served by this process, as the service would; the gate policy is not installed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
import pytest_asyncio
import yaml

from extender.certs.keeper import Keeper, server_context
from extender.certs.publish import Publisher
from extender.certs.sources import SecretSource
from extender.model.errors import Gone
from extender.model.pods import GATE, QUEUE_NAME
from extender.serve.guard_jobs import JobGuard
from extender.serve.metrics import Metrics
from extender.serve.server import Server
from extender.serve.webhook import Webhook
from tests.manifests.cluster import (
    MANIFESTS,
    NAMESPACE,
    add_namespace,
    eventually,
    install,
    jobs_beside,
    refusal,
    shaped_job,
    writer,
)
from tests.rig import Api, ApiError, Rig
from tests.serve.doubles import FakeHealth, FakeQueues
from tests.serve.guard_cases import UPDATES, WRITER, Case, pod
from tests.serve.job_cases import CREATED, EQUAL, LEAST, UPDATED, WAITING, JobCase, job

pytestmark = [pytest.mark.rig]

RIG = {"scheduler": False}
POLICIES = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
HOOKS = "/apis/admissionregistration.k8s.io/v1"
DRY = {"dryRun": "All"}
ASKED = {LEAST, EQUAL}


class CertApi:
    """The rig's API in the words of ``certs``."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def get(self, path: str) -> bytes:
        try:
            return orjson.dumps(await self._api.get(path))
        except ApiError as error:
            raise _translated(error) from error

    async def post(self, path: str, body: bytes) -> bytes:
        return orjson.dumps(await self._api.create(path, orjson.loads(body)))

    async def put(self, path: str, body: bytes) -> bytes:
        return orjson.dumps(await self._api.replace(path, orjson.loads(body)))

    async def apply(self, path: str, body: bytes, *, field_manager: str) -> bytes:
        answer = await self._api.patch(path, orjson.loads(body), kind="apply", fieldManager=field_manager)
        return orjson.dumps(answer)


def _translated(error: ApiError) -> Exception:
    return Gone(str(error)) if error.status == 404 else error


class Served:
    """The webhooks of this process, and how often each was called."""

    def __init__(self, server: Server, calls: Counter[str], pods: str) -> None:
        self.server = server
        self.calls = calls
        self.pods = pods


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def served(rig: Rig) -> AsyncIterator[Served]:
    """Webhooks that the API server trusts and calls."""
    await install(rig, "base", drop=POLICIES)
    webhook = Webhook(FakeQueues("with-default"), writer=WRITER)
    calls: Counter[str] = Counter()

    def counted(name: str, handler: Any) -> Any:
        def answer(body: bytes) -> Any:
            calls[name] += 1
            return handler(body)

        return answer

    server = Server(
        extender={},
        webhooks={
            "/webhooks/mutate-pods": counted("mutate", webhook.mutate),
            "/webhooks/validate-pods": counted("validate", webhook.validate),
            "/webhooks/validate-jobs": counted("validate-jobs", JobGuard(writer=WRITER).validate),
        },
        health=FakeHealth(),
        metrics=Metrics(),
        body_max={"extender": 1 << 20, "webhook": 1 << 20},
    )
    ports = dict.fromkeys(("extender", "webhook", "http"), 0)
    context = server_context()
    await server.start(ports, host="127.0.0.1", tls={"webhook": context})
    await _point_at(rig, server.ports["webhook"])
    async with await writer(rig) as ours:
        api = CertApi(ours)
        source = SecretSource(api, namespace=NAMESPACE, name="cohort-extender-certs", names=["127.0.0.1"])
        keeper = Keeper(source, [context], now=lambda: datetime.now(UTC), publisher=Publisher(api))
        await eventually(lambda: _refreshed(keeper), what="the rights of our account")
    pods = await add_namespace(rig, "ward")
    await add_namespace(rig, "with-default", **{"cohort-extender.io/default-queue": "true"})
    found = Served(server, calls, pods)
    await eventually(lambda: _gates(rig, found), what="the webhooks")
    yield found
    await server.stop()


async def _refreshed(keeper: Keeper) -> bool:
    return not await refusal(keeper.refresh())


async def _gates(rig: Rig, served: Served) -> bool:
    return gates(await created(rig, served.pods, pod(queue="a"))) == [GATE]


async def _point_at(rig: Rig, port: int) -> None:
    for configuration in yaml.safe_load_all((MANIFESTS / "base" / "webhooks.yaml").read_text()):
        patch = []
        for index, hook in enumerate(configuration["webhooks"]):
            path = f"/webhooks/{index}/clientConfig"
            patch += [
                {"op": "remove", "path": f"{path}/service"},
                {
                    "op": "add",
                    "path": f"{path}/url",
                    "value": f"https://127.0.0.1:{port}{hook['clientConfig']['service']['path']}",
                },
            ]
        await rig.api.patch(f"{HOOKS}/{configuration['kind'].lower()}s/cohort-extender", patch, kind="json")


def named(made: dict[str, Any]) -> dict[str, Any]:
    return {**made, "metadata": {**made["metadata"], "name": "p"}}


async def created(rig: Rig, pods: str, made: dict[str, Any]) -> dict[str, Any]:
    """The pod as the API server would store it."""
    result: dict[str, Any] = await rig.api.request("POST", pods, body=named(made), params=DRY)
    return result


def gates(found: dict[str, Any]) -> list[str]:
    return [gate["name"] for gate in found["spec"].get("schedulingGates", [])]


def daemon(made: dict[str, Any]) -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "1", "controller": True}
    made["metadata"]["ownerReferences"] = [owner]
    return made


def marked(made: dict[str, Any]) -> dict[str, Any]:
    amounts = {"cohort-extender.io/queued-pod": "1"}
    made["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
    return made


@pytest.mark.parametrize(
    ("made", "called", "gated"),
    [
        pytest.param(pod(queue="a"), 1, True, id="a pod with a queue"),
        pytest.param(pod(queue_label="a"), 1, True, id="a pod with its queue in a label"),
        pytest.param(pod(), 0, False, id="a pod without a queue"),
        pytest.param(pod(annotations={"note": "x"}), 0, False, id="a pod with another annotation"),
        pytest.param(daemon(pod(queue="a")), 0, False, id="a pod of a DaemonSet"),
        pytest.param(marked(pod(queue="a", managed=True, gated=True)), 0, True, id="a pod that is marked already"),
    ],
)
async def test_we_are_called_about_queued_pods_only(
    rig: Rig, served: Served, made: dict[str, Any], called: int, gated: bool
) -> None:
    served.calls.clear()

    found = await created(rig, served.pods, made)

    assert served.calls["mutate"] == called
    assert served.calls["validate"] == 0
    assert gates(found) == ([GATE] if gated else [])


async def test_a_namespace_that_says_so_has_a_default_queue(rig: Rig, served: Served) -> None:
    found = await created(rig, "/api/v1/namespaces/with-default/pods", pod())

    assert gates(found) == [GATE]
    assert found["metadata"]["annotations"] == {QUEUE_NAME: "default"}


@pytest.mark.parametrize("namespace", ["kube-system", NAMESPACE])
async def test_we_are_never_called_about_the_system_and_ourselves(rig: Rig, served: Served, namespace: str) -> None:
    served.calls.clear()
    made = pod(queue="a")
    made["spec"]["securityContext"] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    made["spec"]["containers"][0]["securityContext"] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }

    found = await created(rig, f"/api/v1/namespaces/{namespace}/pods", made)

    assert (gates(found), dict(served.calls)) == ([], {})


async def test_a_forged_admission_is_refused_by_the_webhook(rig: Rig, served: Served) -> None:
    assert "written by cohort-extender only" in await refusal(created(rig, served.pods, pod(admission="{}")))


GATE_CASE = next(case for case in UPDATES if case.says == "the gate is not removed by hand")
NOTE_CASE = next(case for case in UPDATES if case.says == "a note of others may be added")


@pytest.mark.parametrize(
    ("case", "called"),
    [pytest.param(GATE_CASE, 1, id="our gate removed"), pytest.param(NOTE_CASE, 0, id="a note added")],
)
async def test_we_are_called_about_updates_of_our_marks_only(rig: Rig, served: Served, case: Case, called: int) -> None:
    path = f"{served.pods}/p"
    stored = await rig.api.create(served.pods, named(pod(queue="a")))
    wanted = case.new["spec"].get("schedulingGates")
    change = {
        **stored,
        "metadata": {**stored["metadata"], "annotations": case.new["metadata"]["annotations"]},
        "spec": {key: value for key, value in stored["spec"].items() if key != "schedulingGates"}
        | ({"schedulingGates": wanted} if wanted else {}),
    }
    served.calls.clear()
    try:
        said = await refusal(rig.api.request("PUT", path, body=change, params=DRY))
    finally:
        await rig.api.delete(path, grace_s=0)

    assert served.calls["validate"] == called
    assert bool(said) is bool(called)
    assert case.refusal in said


@pytest.mark.parametrize("arguments", [("--server-side",), ()], ids=["server-side apply", "client-side apply"])
async def test_the_bundle_outlives_another_apply_of_the_manifests(rig: Rig, arguments: tuple[str, ...]) -> None:
    copies = list(yaml.safe_load_all((MANIFESTS / "base" / "webhooks.yaml").read_text()))
    for copy in copies:
        copy["metadata"]["name"] = "copy"
    text = yaml.safe_dump_all(copies)
    publisher = Publisher(CertApi(rig.api), name="copy")
    try:
        await rig.kubectl("apply", *arguments, "-f", "-", input=text)
        written = await publisher.publish(b"bundle")
        copies[0]["webhooks"][0]["timeoutSeconds"] = 5
        await rig.kubectl("apply", *arguments, "-f", "-", input=yaml.safe_dump_all(copies))
        again = await publisher.publish(b"bundle")
        found = await rig.api.get(f"{HOOKS}/mutatingwebhookconfigurations/copy")
    finally:
        await rig.kubectl("delete", "-f", "-", input=text)

    assert (written, again) == (2, 0)
    assert found["webhooks"][0]["timeoutSeconds"] == 5
    assert {hook["clientConfig"]["service"]["name"] for hook in found["webhooks"]} == {"cohort-extender-webhook"}


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.says) for case in CREATED if "a queue must" not in case.says]
)
async def test_we_are_asked_about_new_jobs_that_say_more_than_their_queue(
    rig: Rig, served: Served, case: JobCase
) -> None:
    served.calls.clear()
    said = await refusal(rig.api.request("POST", jobs_beside(served.pods), body=named(case.new), params=DRY))

    assert bool(said) is bool(case.refusal), said
    assert case.refusal in said
    assert served.calls["validate-jobs"] == int(
        bool(case.refusal) or bool(set(case.new["metadata"]["annotations"]) & ASKED)
    )


# Of those that wait: a running one makes pods, about which we are called as well.
HELD_CASES = [case for case in UPDATED if case.refusal and case.old and case.old["spec"]["suspend"]]


@pytest.mark.parametrize("case", [pytest.param(case, id=case.says) for case in HELD_CASES])
async def test_what_others_may_not_do_to_a_job_reaches_us(rig: Rig, served: Served, case: JobCase) -> None:
    name = f"w{HELD_CASES.index(case)}"
    path = f"{jobs_beside(served.pods)}/{name}"
    async with await writer(rig) as ours:
        stored = await ours.create(
            jobs_beside(served.pods),
            named(case.old or {}) | {"metadata": {**(case.old or {})["metadata"], "name": name}},
        )
        try:
            stored = await ours.replace(path, shaped_job(stored, case.old or {}))
            said = await refusal(rig.api.request("PUT", path, body=shaped_job(stored, case.new), params=DRY))
        finally:
            await rig.api.delete(path, propagationPolicy="Background")

    assert case.refusal in said


async def test_a_note_on_a_job_is_none_of_our_business(rig: Rig, served: Served) -> None:
    made = job(**WAITING)
    path = jobs_beside(served.pods)
    stored = await rig.api.create(path, named(made))
    served.calls.clear()
    noted = shaped_job(stored, job(**WAITING, annotations={"note": "x"}))
    said = await refusal(rig.api.request("PUT", f"{path}/p", body=noted, params=DRY))
    await rig.api.delete(f"{path}/p", propagationPolicy="Background")

    assert (said, served.calls["validate-jobs"]) == ("", 0)
