"""How many steps of admission a queued pod costs the API server, and that saving them has cost no protection.

A step converts the pod and the old pod anew, so each is dear (ADR 0030). The API server counts mutations, and match
conditions that ended an invocation; one that is missing from the counts went on to its validations, three steps more.
"""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from extender.certs.keeper import server_context
from extender.model.jobs import UNIT_ADMISSION_ANNOTATION, UNIT_ANNOTATION
from extender.model.pods import ADMISSION_ANNOTATION, GATE, MARKER_RESOURCE
from extender.serve.http import Reply
from extender.serve.metrics import Metrics
from extender.serve.review import Outcome, read_review, write_review
from extender.serve.server import Server
from tests.manifests.cluster import (
    LEASE,
    add_namespace,
    eventually,
    hold_the_lease,
    install,
    policies_work,
    replica_token,
)
from tests.manifests.test_policies_on_rig import marks, named, with_resources
from tests.rig import Api, Rig
from tests.serve.doubles import FakeHealth
from tests.serve.guard_cases import pod

pytestmark = [pytest.mark.rig]

RIG = {"scheduler": False}
HOOKS = "/apis/admissionregistration.k8s.io/v1"
MARKED = {"limits": {MARKER_RESOURCE: "1"}}
OF_A_JOB = {UNIT_ANNOTATION: "job", UNIT_ADMISSION_ANNOTATION: "{}"}
_MATCHES = "apiserver_admission_match_condition_evaluation_seconds_count"
_MUTATIONS = "apiserver_mutating_admission_policy_check_total"
_SAMPLE = re.compile(rf'^({_MATCHES}|{_MUTATIONS})\{{.*?(?:name|policy)="([^"]*)".*\}} (\d+)', re.MULTILINE)


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def pods(rig: Rig) -> str:
    """Where pods are created, with everything of the default installation but the service, and nobody else at work."""
    await install(rig, "default")
    path = await add_namespace(rig, "ward")
    await add_namespace(rig, "meddled")
    await policies_work(rig, path)
    return path


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def leader(rig: Rig, pods: str) -> AsyncIterator[Api]:
    """The API as the replica that leads. Nobody else writes pods from here on."""
    async with rig.api_as(await replica_token(rig)) as api:
        for component in ("kube-controller-manager", "kwok"):
            await rig.component(component).kill()
        yield api


async def steps(rig: Rig) -> Counter[tuple[str, str]]:
    """What the API server has counted so far, by what happened and name of the policy or webhook."""
    found: Counter[tuple[str, str]] = Counter()
    for metric, name, count in _SAMPLE.findall(await rig.metrics("kube-apiserver")):
        found["mutated" if metric == _MUTATIONS else "ended", name] += int(count)
    return found


@pytest.mark.parametrize(
    ("made", "want"),
    [
        pytest.param(
            pod(queue="a"),
            # The API server asks again, since the pod was changed: that ends with the conditions.
            {("mutated", "cohort-extender-queued"): 1, ("ended", "cohort-extender-queued"): 1},
            id="a pod that names a queue",
        ),
        pytest.param(
            with_resources(pod(managed=True, annotations=OF_A_JOB), **MARKED),
            {("ended", "cohort-extender-queued"): 1},
            id="a pod of an admitted Job, which has the marks from its template",
        ),
        pytest.param(
            pod(),
            {("ended", "cohort-extender-queued"): 1, ("ended", "queued.pods.cohort-extender.io"): 1},
            id="a pod that names no queue",
        ),
    ],
)
async def test_a_new_pod_costs_no_more_steps(
    rig: Rig, pods: str, leader: Api, made: dict[str, Any], want: dict[tuple[str, str], int]
) -> None:
    before = await steps(rig)

    await rig.api.request("POST", pods, body=named(made, "counted"), params={"dryRun": "All"})

    assert await steps(rig) - before == {**want, ("ended", "cohort-extender-pods"): 1}


ADMIT = {
    "metadata": {"annotations": {ADMISSION_ANNOTATION: "{}"}},
    "spec": {"schedulingGates": [{"$patch": "delete", "name": GATE}], "nodeSelector": {"pool": "a100"}},
}

ENDED_BY_BOTH = {("ended", "cohort-extender-pods"): 1, ("ended", "cohort-extender-fence"): 1}


async def test_an_admission_costs_the_conditions_of_guard_and_fence(rig: Rig, pods: str, leader: Api) -> None:
    await rig.api.create(pods, named(pod(queue="a"), "admitted"))
    before = await steps(rig)

    await leader.patch(f"{pods}/admitted", ADMIT, kind="strategic")

    assert await steps(rig) - before == ENDED_BY_BOTH


async def test_a_change_of_others_that_says_nothing_of_queues_costs_the_same(rig: Rig, pods: str, leader: Api) -> None:
    await rig.api.create(pods, named(pod(queue="a"), "finished"))
    before = await steps(rig)

    await rig.api.patch(f"{pods}/finished", {"metadata": {"finalizers": [], "annotations": {"note": "x"}}})

    assert await steps(rig) - before == ENDED_BY_BOTH


async def test_where_nobody_has_led_yet_everybody_changes_pods_as_ever(rig: Rig, pods: str) -> None:
    await rig.api.create(pods, named(pod(), "unled"))
    await rig.api.delete(LEASE)
    try:
        for number in range(20):  # it takes the policy a moment to see that
            await asyncio.sleep(0.1)
            await rig.api.patch(f"{pods}/unled", {"metadata": {"annotations": {"note": str(number)}}})
    finally:
        await hold_the_lease(rig)


async def test_marks_that_a_webhook_takes_away_are_put_back(rig: Rig, pods: str) -> None:
    server = Server(
        extender={},
        webhooks={"/strip": stripped},
        health=FakeHealth(),
        metrics=Metrics(),
        body_max={"extender": 1 << 20, "webhook": 1 << 20},
    )
    pair = rig.ca.serving("meddler", addresses=["127.0.0.1"])
    context = server_context()
    context.load_cert_chain(pair.cert, pair.key)
    await server.start(dict.fromkeys(("extender", "webhook", "http"), 0), host="127.0.0.1", tls={"webhook": context})
    await rig.api.create(f"{HOOKS}/mutatingwebhookconfigurations", _meddler(rig, server.ports["webhook"]))
    path = pods.replace("ward", "meddled")
    try:

        async def meddled() -> bool:
            found = await rig.api.request("POST", path, body=named(pod(queue="a")), params={"dryRun": "All"})
            return "meddled" in found["metadata"]["annotations"]

        await eventually(meddled, what="the webhook of others")
        found = marks(await rig.api.request("POST", path, body=named(pod(queue="a")), params={"dryRun": "All"}))
    finally:
        await rig.api.delete(f"{HOOKS}/mutatingwebhookconfigurations/meddler")
        await server.stop()

    assert found["gates"] == [GATE]
    assert found["limits"] == {MARKER_RESOURCE: "1"}


def stripped(body: bytes) -> Reply:
    """Takes gate and marker away from a pod."""
    request = read_review(body)
    taken = (
        {"op": "remove", "path": "/spec/schedulingGates"},
        {"op": "replace", "path": "/spec/containers/0/resources", "value": {}},
        {"op": "add", "path": "/metadata/annotations/meddled", "value": "true"},
    )
    return Reply(200, write_review(request.uid, Outcome(patch=taken)), "changed")


def _meddler(rig: Rig, port: int) -> dict[str, Any]:
    config = {"url": f"https://127.0.0.1:{port}/strip", "caBundle": b64encode(rig.ca.cert.read_bytes()).decode()}
    hook = {
        "name": "meddler.example.com",
        "admissionReviewVersions": ["v1"],
        "clientConfig": config,
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "meddled"}},
        "sideEffects": "None",
    }
    return {"metadata": {"name": "meddler"}, "webhooks": [hook]}
