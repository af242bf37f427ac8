"""The policies on a real API server: they mark and guard pods with nothing of ours running."""

from __future__ import annotations

from typing import Any

import pytest
import pytest_asyncio

from extender.model.jobs import UNIT_ADMISSION_ANNOTATION, UNIT_ANNOTATION
from extender.model.pods import GATE, MANAGED_LABEL, MARKER_RESOURCE, QUEUE_NAME
from extender.serve.webhook import Webhook
from tests.manifests.cluster import (
    KUEUE,
    add_namespace,
    eventually,
    install,
    jobs_beside,
    policies_work,
    refusal,
    shaped_job,
    writer,
)
from tests.rig import Api, Rig
from tests.serve.doubles import FakeQueues, patched, review
from tests.serve.guard_cases import CREATIONS, FOREIGN_GATE, UPDATES, WRITER, Case, pod
from tests.serve.job_cases import CREATED, UPDATED, JobCase

pytestmark = [pytest.mark.rig]

RIG = {"scheduler": False}
WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
DRY = {"dryRun": "All"}


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def pods(rig: Rig) -> str:
    """Where pods are created, with the policies in force."""
    await install(rig, "default", drop=WEBHOOKS)
    path = await add_namespace(rig, "ward")
    await policies_work(rig, path)
    return path


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def ours(rig: Rig, pods: str) -> Any:
    """The API as our service account."""
    async with await writer(rig) as api:
        await eventually(lambda: _may_create(api, pods), what="the scene's rights")
        yield api


async def _may_create(api: Api, pods: str) -> bool:
    return not await refusal(api.request("POST", pods, body=named(pod(), "probe"), params=DRY))


def named(made: dict[str, Any], name: str = "p") -> dict[str, Any]:
    """The pod with a name."""
    return {**made, "metadata": {**made["metadata"], "name": name}}


async def created(rig: Rig, pods: str, made: dict[str, Any]) -> dict[str, Any]:
    """The pod as the API server would store it."""
    result: dict[str, Any] = await rig.api.request("POST", pods, body=named(made), params=DRY)
    return result


def marks(found: dict[str, Any]) -> dict[str, Any]:
    """Everything that we may have written."""
    resources = found["spec"]["containers"][0].get("resources", {})
    return {
        "labels": found["metadata"].get("labels", {}),
        "annotations": found["metadata"].get("annotations", {}),
        "gates": [gate["name"] for gate in found["spec"].get("schedulingGates", [])],
        "requests": resources.get("requests", {}),
        "limits": resources.get("limits", {}),
    }


def of_a_job(**words: Any) -> dict[str, Any]:
    """A pod of a Job that has its admission."""
    return pod(annotations={UNIT_ANNOTATION: "job", UNIT_ADMISSION_ANNOTATION: "{}"}, **words)


def with_resources(made: dict[str, Any], **resources: Any) -> dict[str, Any]:
    made["spec"]["containers"][0]["resources"] = resources
    return made


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(pod(queue="a"), id="queue in an annotation"),
        pytest.param(pod(queue_label="a"), id="queue in a label"),
        pytest.param(pod(queue="a", foreign=True), id="a gate of others stays"),
        pytest.param(pod(queue="a", managed=True, gated=True), id="marked in part"),
        pytest.param(with_resources(pod(queue="a"), limits={"cpu": "1", "nvidia.com/gpu": "2"}), id="limits"),
        pytest.param(with_resources(pod(queue="a"), requests={"cpu": "500m"}), id="requests"),
        pytest.param(
            with_resources(pod(queue="a", managed=True, gated=True), limits={MARKER_RESOURCE: "0"}), id="a void marker"
        ),
        pytest.param(
            with_resources(of_a_job(managed=True), limits={MARKER_RESOURCE: "0"}), id="a void marker, of a Job"
        ),
        pytest.param(pod(), id="no queue"),
        pytest.param(pod(annotations={UNIT_ANNOTATION: "job"}), id="of a Job that has no admission"),
        pytest.param(of_a_job(), id="of an admitted Job"),
        pytest.param(of_a_job(queue="a"), id="of an admitted Job, and names a queue"),
        pytest.param(pod(queue="a", annotations={UNIT_ADMISSION_ANNOTATION: "{}"}), id="of no Job, whatever it says"),
        pytest.param(pod(queue="a", node="n1", annotations={"kubernetes.io/config.mirror": "x"}), id="a static pod"),
    ],
)
async def test_the_policy_marks_a_pod_just_as_the_webhook_does(rig: Rig, pods: str, made: dict[str, Any]) -> None:
    webhook = Webhook(FakeQueues(), writer=WRITER)
    by_webhook = patched(made, webhook.mutate(review(made)).body)
    want = marks(by_webhook)
    want["requests"] = want["limits"] | want["requests"]  # the API server's own default

    by_policy = marks(await created(rig, pods, made))

    by_policy["requests"] = by_policy["limits"] | by_policy["requests"]
    assert by_policy == want


async def test_a_marked_pod_waits_and_tells_the_scheduler_to_ask_us(rig: Rig, pods: str) -> None:
    found = marks(await created(rig, pods, pod(queue="a", foreign=True)))

    assert found["gates"] == [FOREIGN_GATE, GATE]
    assert found["labels"][MANAGED_LABEL] == "true"
    assert (found["requests"][MARKER_RESOURCE], found["limits"][MARKER_RESOURCE]) == ("1", "1")


async def test_lists_with_keys_twice_and_pod_level_resources_come_through_unharmed(rig: Rig, pods: str) -> None:
    made = pod(queue="a")
    (container,) = made["spec"]["containers"]
    container["env"] = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
    container["ports"] = [{"containerPort": 80, "name": "x"}, {"containerPort": 80, "name": "y"}]
    made["spec"]["containers"].append({"name": "side", "image": "busybox:1.37"})
    made["spec"]["resources"] = {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}

    found = await created(rig, pods, made)

    first, second = found["spec"]["containers"]
    assert first["env"] == container["env"]
    assert [port["name"] for port in first["ports"]] == ["x", "y"]
    assert (second["name"], second["resources"]) == ("side", {})
    assert found["spec"]["resources"] == made["spec"]["resources"]
    assert marks(found)["gates"] == [GATE]


async def test_a_pod_of_a_daemonset_is_left_alone(rig: Rig, pods: str) -> None:
    made = pod(queue="a")
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "1", "controller": True}
    made["metadata"]["ownerReferences"] = [owner]

    assert marks(await created(rig, pods, made))["gates"] == []


@pytest.mark.parametrize("namespace", ["kube-system", "cohort-system"])
async def test_pods_of_the_system_and_our_own_are_left_alone(rig: Rig, pods: str, namespace: str) -> None:
    found = marks(await created(rig, f"/api/v1/namespaces/{namespace}/pods", _restricted(pod(queue="a"))))

    assert (found["gates"], found["labels"]) == ([], {})


def _restricted(made: dict[str, Any]) -> dict[str, Any]:
    made["spec"]["securityContext"] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    made["spec"]["containers"][0]["securityContext"] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    return made


async def test_a_local_queue_called_default_takes_pods_that_name_none(rig: Rig, pods: str) -> None:
    path = await add_namespace(rig, "with-default")
    before = marks(await created(rig, path, pod()))
    queues = f"{KUEUE}/v1beta2/namespaces/with-default/localqueues"
    body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "default"}, "spec": {}}
    await rig.api.create(queues, body)

    async def gated() -> bool:
        return marks(await created(rig, path, pod()))["gates"] == [GATE]

    await eventually(gated, what="the default queue")
    after = marks(await created(rig, path, pod()))
    own = marks(await created(rig, path, pod(queue="a")))
    elsewhere = marks(await created(rig, pods, pod()))

    assert before["gates"] == []
    assert (after["annotations"], after["labels"]) == ({QUEUE_NAME: "default"}, {MANAGED_LABEL: "true"})
    assert own["annotations"] == {QUEUE_NAME: "a"}
    assert elsewhere["gates"] == []


@pytest.mark.parametrize("case", [pytest.param(case, id=case.says) for case in CREATIONS])
async def test_the_policy_guards_creations_like_the_webhook(rig: Rig, pods: str, case: Case) -> None:
    said = await refusal(created(rig, pods, case.new))

    assert bool(said) is bool(case.refusal), said
    assert case.refusal in said


@pytest.mark.parametrize("case", [pytest.param(case, id=case.says) for case in UPDATES if case.can_arise])
async def test_the_policy_guards_updates_like_the_webhook(rig: Rig, pods: str, ours: Api, case: Case) -> None:
    assert case.old is not None
    path = f"{pods}/p"
    stored = await ours.create(pods, named(case.old))
    try:
        stored = await ours.replace(path, shaped(stored, case.old))
        who = ours if case.user == WRITER else rig.api
        said = await refusal(who.request("PUT", path, body=shaped(stored, case.new), params=DRY))
    finally:
        await rig.api.delete(path, grace_s=0)

    assert bool(said) is bool(case.refusal), said
    assert case.refusal in said


@pytest.mark.parametrize("case", [pytest.param(case, id=case.says) for case in CREATED])
async def test_the_policy_guards_new_jobs_like_the_webhook(rig: Rig, pods: str, case: JobCase) -> None:
    said = await refusal(rig.api.request("POST", jobs_beside(pods), body=named(case.new), params=DRY))

    assert bool(said) is bool(case.refusal), said
    assert case.refusal in said


@pytest.mark.parametrize("case", [pytest.param(case, id=case.says) for case in UPDATED])
async def test_the_policy_guards_jobs_like_the_webhook(rig: Rig, pods: str, ours: Api, case: JobCase) -> None:
    assert case.old is not None
    name = f"j{UPDATED.index(case)}"
    path = f"{jobs_beside(pods)}/{name}"
    stored = await ours.create(jobs_beside(pods), named(case.old, name))
    try:
        stored = await ours.replace(path, shaped_job(stored, case.old))
        said = await refusal(rig.api.request("PUT", path, body=shaped_job(stored, case.new), params=DRY))
    finally:
        await rig.api.delete(path, propagationPolicy="Background")

    assert bool(said) is bool(case.refusal), said
    assert case.refusal in said


def shaped(stored: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """The stored pod with the labels, annotations and gates of *wanted*."""
    metadata = stored["metadata"] | {key: wanted["metadata"][key] for key in ("labels", "annotations")}
    spec = {key: value for key, value in stored["spec"].items() if key != "schedulingGates"}
    if gates := wanted["spec"].get("schedulingGates"):
        spec["schedulingGates"] = gates
    return stored | {"metadata": metadata, "spec": spec}


@pytest.mark.parametrize(
    ("cpu", "refused"),
    [pytest.param("3", True, id="not up"), pytest.param("1", False, id="but down")],
)
async def test_a_queued_pod_cannot_grow_in_place(rig: Rig, pods: str, cpu: str, refused: bool) -> None:
    path = f"{pods}/p"
    await rig.api.create(pods, named(with_resources(pod(queue="a"), requests={"cpu": "2"})))
    body = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}}
    try:
        said = await refusal(rig.api.patch(f"{path}/resize", body, kind="strategic", **DRY))
    finally:
        await rig.api.delete(path, grace_s=0)

    assert ("cannot grow in place" in said) is refused, said
    assert bool(said) is refused


async def test_a_pod_without_a_queue_may_grow(rig: Rig, pods: str) -> None:
    path = f"{pods}/p"
    await rig.api.create(pods, named(with_resources(pod(), requests={"cpu": "2"})))
    body = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "3"}}}]}}
    try:
        said = await refusal(rig.api.patch(f"{path}/resize", body, kind="strategic", **DRY))
    finally:
        await rig.api.delete(path, grace_s=0)

    assert said == ""
