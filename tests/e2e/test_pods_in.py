"""How pods come in: whatever they are, and whenever they came, each is counted once or left alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import orjson
import pytest
import pytest_asyncio

from tests.e2e.installation import Installation
from tests.e2e.story import ADMISSION, GATE, is_running, is_waiting, pods_path
from tests.e2e.ward import CLASS, KUEUE, QUEUE, Ward, opened, pod_of
from tests.rig import NodePool

pytestmark = [pytest.mark.rig, pytest.mark.timeout(300)]

POOLS = (NodePool("plain", 3), NodePool("fast", 1, {"speed": "fast"}))
MANAGED = "cohort-extender.io/managed"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings"
MARKING = "cohort-extender-queued"


@pytest_asyncio.fixture(loop_scope="session")
async def ward(hospital: Installation) -> AsyncIterator[Ward]:
    async with opened(hospital) as ward:
        yield ward


@asynccontextmanager
async def nobody_marks(ward: Ward) -> AsyncIterator[None]:
    """Our service is down and the marking policy is not bound: pods arrive as their authors wrote them."""
    binding = await ward.api.get(f"{BINDINGS}/{MARKING}")
    await ward.hospital.service.kill()
    await ward.api.delete(f"{BINDINGS}/{MARKING}")
    await _policy_is(ward, bound=False)
    try:
        yield
    finally:
        ward.rig.component("kube-scheduler").resume()
        for field in ("resourceVersion", "uid", "creationTimestamp", "managedFields", "generation"):
            binding["metadata"].pop(field, None)
        await ward.api.create(BINDINGS, binding)
        await _policy_is(ward, bound=True)
        await ward.hospital.service.start()


async def _policy_is(ward: Ward, *, bound: bool) -> None:
    """The API server takes a moment to notice."""
    await _until_gated(ward, pod_of("probe"), gated=bound)


async def _until_gated(ward: Ward, pod: dict, *, gated: bool = True) -> None:
    for _ in range(300):
        if await _would_be_gated(ward, pod) is gated:
            return
        await asyncio.sleep(0.1)
    raise TimeoutError("the API server has not noticed the policy")


async def _would_be_gated(ward: Ward, pod: dict) -> bool:
    made = await ward.api.request("POST", ward.pods_at, body=pod, params={"dryRun": "All"})
    return is_waiting(made)


def admission(pod: dict) -> dict:
    return orjson.loads(pod["metadata"]["annotations"][ADMISSION])


async def test_what_runs_already_is_counted_and_obeys_the_queues_rules(ward: Ward):
    fast = {"name": "fast"}
    body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": fast}
    await ward.api.patch(f"{KUEUE}/resourceflavors/fast", {**body, "spec": {"nodeLabels": {"speed": "fast"}}}, "apply")
    queue = await ward.queue(cpu="4", flavors=("fast", "any-node"), preemption={"withinClusterQueue": "LowerPriority"})
    async with nobody_marks(ward):
        await ward.pod("alone", cpu="3", nodeSelector={"rig.cohort-extender.io/pool": "plain"})
        for name in ("one", "two"):
            await ward.member(name, 2, cpu="2", nodeSelector={"speed": "fast"})
        await ward.runs("alone", "one", "two")
        ward.rig.component("kube-scheduler").pause()
        await ward.pod("late", cpu="1")

    def marked(pods):
        return all(
            pods[name]["metadata"].get("labels", {}).get(MANAGED) == "true" for name in ("alone", "one", "two", "late")
        )

    await ward.until(marked, "all are taken in")
    await ward.status("clusterqueues", queue, lambda status: status.get("admittedWorkloads") == 3)
    await ward.runs("late")
    status = await ward.status("clusterqueues", queue, lambda status: status["flavorsUsage"][0]["resources"])
    used = {flavor["name"]: flavor["resources"][0]["total"] for flavor in status["flavorsUsage"]}
    assert used == {"fast": "4", "any-node": "4"}
    assert admission(await ward.get("alone"))["podSets"][0]["flavors"] == {"cpu": "any-node"}
    assert admission(await ward.get("two"))["podSets"][0]["count"] == 2

    await ward.pod("more", cpu="3")
    assert "uses 4 of its 4 cpu" in await ward.says("more", "QuotaUsed")
    await ward.api.patch(
        f"{KUEUE}/workloadpriorityclasses/urgent",
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "WorkloadPriorityClass",
            "metadata": {"name": "urgent"},
            "value": 9,
        },
        "apply",
    )
    await ward.pod("urgent", cpu="3", labels={CLASS: "urgent"})
    await ward.runs("urgent", "alone")
    await ward.gone("one", "two")


async def test_a_gate_of_somebody_else_is_respected_shown_and_holds_no_quota(ward: Ward):
    await ward.queue(cpu="1")
    await ward.pod("gated", schedulingGates=[{"name": "example.com/license"}])
    assert "example.com/license" in await ward.says("gated", "ForeignGate")

    await ward.pod("other")
    await ward.runs("other")
    gates = [gate["name"] for gate in (await ward.get("gated"))["spec"]["schedulingGates"]]
    assert sorted(gates) == [GATE, "example.com/license"]

    await ward.annotate("other", finish="true")
    patch = {"spec": {"schedulingGates": [{"name": "example.com/license", "$patch": "delete"}]}}
    await ward.api.patch(f"{ward.pods_at}/gated", patch, "strategic")
    await ward.runs("gated")


async def test_a_queue_called_default_serves_pods_that_name_none(ward: Ward):
    await ward.queue("default")
    await _until_gated(ward, pod_of("probe", queue=None))  # the API server has to know the policy's parameter
    await ward.pod("plain", queue=None)

    await ward.runs("plain")
    pod = await ward.get("plain")
    assert pod["metadata"]["annotations"][QUEUE] == "default"
    assert admission(pod)["clusterQueue"] == f"{ward.name}-default"


async def test_a_namespace_must_be_selected(ward: Ward):
    await ward.queue(namespaceSelector={"matchLabels": {"department": "radiology"}})
    await ward.pod("scan")
    said = await ward.says("scan", "NamespaceNotAllowed")
    assert said == f"namespace {ward.name} is not selected by ClusterQueue {ward.name}-main"

    await ward.api.patch(f"/api/v1/namespaces/{ward.name}", {"metadata": {"labels": {"department": "radiology"}}})
    await ward.runs("scan")


async def test_a_priority_class_must_exist_and_sets_the_order(ward: Ward):
    await ward.queue(cpu="1")
    await ward.pod("first")
    await ward.runs("first")
    await ward.pod("second")
    await ward.pod("vip", labels={CLASS: "vip"})
    assert "WorkloadPriorityClass vip does not exist" in await ward.says("vip", "RequestInvalid")
    assert (await ward.events("vip", "RequestInvalid"))[0]["type"] == "Warning"

    body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": "vip"}}
    await ward.api.create(f"{KUEUE}/workloadpriorityclasses", {**body, "value": 100})
    await ward.says("vip", "QuotaUsed")
    await ward.annotate("first", finish="true")
    await ward.runs("vip")
    assert await ward.running() == ["vip"]


def container(name: str, cpu: str | None, **more: object) -> dict:
    resources = {"resources": {"requests": {"cpu": cpu}}} if cpu else {}
    return {"name": name, "image": "busybox:1.37", **resources, **more}


@pytest.mark.parametrize(
    ("spec", "want_millis"),
    [
        pytest.param({"containers": [container("a", "1"), container("b", "500m")]}, 1500, id="containers"),
        pytest.param({"containers": [container("a", "1")], "initContainers": [container("i", "3")]}, 3000, id="init"),
        pytest.param(
            {
                "containers": [container("a", "1")],
                "initContainers": [container("s", "2", restartPolicy="Always"), container("i", "1500m")],
            },
            3500,
            id="a sidecar counts with what comes after it",
        ),
        pytest.param({"containers": [container("a", "1")], "runtimeClassName": "kata"}, 1250, id="overhead"),
        pytest.param(
            {"containers": [container("a", "1")], "resources": {"requests": {"cpu": "2"}}}, 2000, id="of the whole pod"
        ),
        pytest.param({"containers": [container("a", None)]}, 300, id="the default of a LimitRange"),
    ],
)
async def test_what_a_pod_is_charged(ward: Ward, spec: dict, want_millis: int):
    await ward.queue(cpu="8")
    limits = {"type": "Container", "defaultRequest": {"cpu": "300m"}}
    metadata = {"metadata": {"name": "small"}, "spec": {"limits": [limits]}}
    await ward.api.create(
        f"/api/v1/namespaces/{ward.name}/limitranges", {"apiVersion": "v1", "kind": "LimitRange", **metadata}
    )
    kata = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "kata"}, "handler": "kata"}
    overhead = {"overhead": {"podFixed": {"cpu": "250m"}}}
    await ward.api.patch("/apis/node.k8s.io/v1/runtimeclasses/kata", {**kata, **overhead}, "apply")
    await ward.pod("charged", **spec)

    pod = await ward.until(
        lambda pods: pods["charged"] if ADMISSION in pods["charged"]["metadata"]["annotations"] else None, "admitted"
    )
    assert pod is not None
    assert admission(pod)["podSets"][0]["usage"] == {"cpu": want_millis}


async def test_pods_that_are_nobodys_business_stay_as_they_are(ward: Ward):
    await ward.queue(cpu="0")
    marks = {"annotations": {QUEUE: "main"}, "labels": {QUEUE: "main"}}
    spec = {"containers": [container("main", "10m")], "terminationGracePeriodSeconds": 0}
    template = {
        "metadata": {"labels": {**marks["labels"], "app": "agent"}, "annotations": marks["annotations"]},
        "spec": spec,
    }
    await ward.api.create(
        f"/apis/apps/v1/namespaces/{ward.name}/daemonsets",
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "agent"},
            "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": template},
        },
    )
    context = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    harmless = container("main", "10m", securityContext=context)
    static = pod_of("static-plain-0", nodeName="plain-0", annotations={"kubernetes.io/config.mirror": "hash"})
    await ward.api.create(ward.pods_at, static)
    for namespace in ("kube-system", "cohort-system"):
        await ward.api.create(pods_path(namespace), pod_of("theirs", labels=marks["labels"], containers=[harmless]))
    await ward.until(lambda pods: sum(map(is_running, pods.values())) == 5, "the DaemonSet and the static pod run")
    for namespace in ("kube-system", "cohort-system"):
        await ward.api.wait_for(pods_path(namespace), lambda pods: any(map(is_running, pods)), what="theirs runs")

    places = (ward.name, "kube-system", "cohort-system")
    before = [await ward.api.get(pods_path(namespace)) for namespace in places]
    await ward.hospital.service.restart()
    await ward.pod("ours", cpu="1")
    await ward.says("ours", "ExceedsMaxQuota")
    await asyncio.sleep(2)  # time in which they could be touched
    after = [await ward.api.get(pods_path(namespace)) for namespace in places]

    def texts(lists: list[dict]) -> list[bytes]:
        pods = [pod for one in lists for pod in one["items"] if pod["metadata"]["name"] != "ours"]
        return [orjson.dumps(pod) for pod in pods]

    assert texts(after) == texts(before)
    for namespace in ("kube-system", "cohort-system"):
        await ward.api.delete(f"{pods_path(namespace)}/theirs", grace_s=0)
