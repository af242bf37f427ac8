"""What people see: status of queues, conditions and events on pods, numbers of metrics; and that it is no storm."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from tests.e2e.installation import Installation
from tests.e2e.story import is_running
from tests.e2e.ward import CLASS, KUEUE, Ward, condition_of, opened
from tests.rig import NodePool

pytestmark = [pytest.mark.rig, pytest.mark.timeout(300)]

POOLS = (NodePool("plain", 3),)
WRITES_PER_S, BURST = 5, 20
"""The bound of docs/reasons.md."""


@pytest_asyncio.fixture(loop_scope="session")
async def ward(hospital: Installation) -> AsyncIterator[Ward]:
    async with opened(hospital) as ward:
        yield ward


def active(status: dict) -> tuple[str, str]:
    """Status and reason of the condition Active."""
    conditions = [one for one in status.get("conditions", ()) if one["type"] == "Active"]
    return (conditions[0]["status"], conditions[0]["reason"]) if conditions else ("", "")


async def metric(ward: Ward, name: str, **labels: str) -> float:
    """The value of one sample of the service's metrics, 0 if there is none."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{ward.hospital.replicas[0].url}/metrics") as response,
    ):
        lines = (await response.text()).splitlines()
    for line in lines:
        if line.startswith(name) and all(f'{key}="{value}"' in line for key, value in labels.items()):
            return float(line.rpartition(" ")[2])
    return 0.0


async def until_metric(ward: Ward, want: float, name: str, **labels: str) -> None:
    for _ in range(100):
        if await metric(ward, name, **labels) == want:
            return
        await asyncio.sleep(0.1)
    assert await metric(ward, name, **labels) == want


def all_say_why(count: int) -> Callable[[dict], bool]:
    """Whether *count* pods called waits-… have a condition."""
    return lambda pods: sum(name.startswith("waits-") and bool(condition_of(pods[name])) for name in pods) == count


async def test_a_cluster_queue_says_what_it_uses_and_what_waits(ward: Ward):
    cohort = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": "lenders"}}
    await ward.api.patch(f"{KUEUE}/cohorts/lenders", {**cohort, "spec": {}}, "apply")
    name = await ward.queue(cpu="2", cohortName="lenders")
    await ward.queue("other", cpu="2", cohortName="lenders")
    await ward.pod("big", cpu="3")
    await ward.runs("big")
    await ward.pod("next", cpu="2")

    status = await ward.status("clusterqueues", name, lambda status: status.get("pendingWorkloads") == 1)
    usage = [{"name": "any-node", "resources": [{"name": "cpu", "total": "3", "borrowed": "1"}]}]
    assert (status["flavorsReservation"], status["flavorsUsage"]) == (usage, usage)
    assert (status["reservingWorkloads"], status["admittedWorkloads"]) == (1, 1)
    assert active(status) == ("True", "Ready")
    share = status["fairSharing"]["weightedShare"]
    assert share == 250  # 1 borrowed of 4 lendable, per mille

    local = await ward.status(
        "localqueues", "main", lambda status: status.get("pendingWorkloads") == 1, namespace=ward.name
    )
    usage = [{"name": "any-node", "resources": [{"name": "cpu", "total": "3"}]}]
    assert (local["flavorsReservation"], local["flavorsUsage"]) == (usage, usage)
    assert (local["reservingWorkloads"], local["admittedWorkloads"]) == (1, 1)
    assert active(local) == ("True", "Ready")
    cohort_status = await ward.status("cohorts", "lenders", bool)
    assert cohort_status == {"fairSharing": {"weightedShare": 0}}

    await until_metric(ward, 3.0, "cohort_cluster_queue_resource_usage", cluster_queue=name, resource="cpu")
    await until_metric(ward, 1.0, "cohort_admitted_active_workloads", cluster_queue=name)
    await until_metric(ward, 1.0, "cohort_pending_workloads", cluster_queue=name, status="inadmissible")
    await until_metric(ward, 250.0, "cohort_cluster_queue_weighted_share", cluster_queue=name)


async def test_a_queue_that_is_not_active_says_why(ward: Ward):
    name = await ward.queue(flavors=("no-such-flavor",))
    await ward.local_queue("astray", "no-such-queue")

    async def becomes(kind: str, name: str, reason: str, namespace: str = "") -> dict:
        return await ward.status(kind, name, lambda status: active(status) == ("False", reason), namespace=namespace)

    await becomes("clusterqueues", name, "FlavorNotFound")
    await becomes("localqueues", "main", "ClusterQueueIsInactive", ward.name)
    await becomes("localqueues", "astray", "ClusterQueueDoesNotExist", ward.name)
    await ward.edit_queue(name, stopPolicy="Hold")
    await becomes("clusterqueues", name, "Stopped")
    await ward.pod("waits")
    await ward.says("waits", "Stopped")
    await ward.edit_local_queue("main", stopPolicy="Hold")
    stopped = await becomes("localqueues", "main", "Stopped", ward.name)
    assert stopped["pendingWorkloads"] == 0


async def test_after_an_admission_no_reason_stays(ward: Ward):
    name = await ward.queue(cpu="1")
    await ward.pod("first")
    await ward.runs("first")
    await ward.pod("second")
    said = await ward.says("second", "QuotaUsed")
    assert said.startswith(f"ClusterQueue {name} uses 1 of its 1 cpu of any-node, 1 more needed (counted 20")

    await ward.annotate("first", finish="true")
    pod = await ward.until(
        lambda pods: pods["second"] if condition_of(pods["second"]).get("status") == "True" else None, "it is admitted"
    )
    assert pod is not None
    condition = condition_of(pod)
    assert (condition["reason"], condition["message"]) == (
        "Admitted",
        f"ClusterQueue {name} holds 1 cpu of any-node for it",
    )
    (event,) = await ward.events("second", "Admitted")
    assert event["type"] == "Normal"


async def test_who_has_to_edit_something_is_warned_once(ward: Ward):
    await ward.queue()
    await ward.pod("lost", queue="nowhere")

    (event,) = await ward.events("lost", "QueueNotFound")
    assert event["type"] == "Warning"
    assert event["message"] == f"no LocalQueue nowhere in namespace {ward.name}"
    await asyncio.sleep(2)
    assert len(await ward.events("lost", "QueueNotFound")) == 1


async def test_a_preemption_names_both_sides_and_is_counted_for_the_preemptor(ward: Ward):
    division, root = f"{ward.name}-division", f"{ward.name}-root"
    for cohort, spec in ((root, {}), (division, {"parentName": root})):
        body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": cohort}, "spec": spec}
        await ward.api.patch(f"{KUEUE}/cohorts/{cohort}", body, "apply")
    taker = await ward.queue("taker", cpu="2", cohortName=root, preemption={"reclaimWithinCohort": "Any"})
    giver = await ward.queue("giver", cpu="1", cohortName=division)
    for name in ("a", "b", "c"):
        await ward.pod(name, queue="giver")
    await ward.runs("a", "b", "c")
    await ward.pod("urgent", cpu="2", queue="taker", labels={CLASS: "clinical"})
    await ward.runs("urgent")

    victims = {"a", "b", "c"} - set(await ward.running())
    assert len(victims) == 2
    for victim in victims:
        (event,) = await ward.events(victim, "Preempted")
        said = event["message"]
        assert f"makes room for {ward.name}/urgent (UID " in said
        assert "which takes back quota that was lent: gives back 1 cpu of any-node; priority 1000 against 0" in said
        assert f"preemptor path: /{root}/{taker}; preemptee path: /{root}/{division}/{giver}" in said
    reason = {"preempting_cluster_queue": taker, "reason": "InCohortReclamation"}
    assert await metric(ward, "cohort_preempted_workloads_total", **reason) == 2


async def test_many_that_wait_are_no_storm_of_writes(ward: Ward):
    """60 pods wait for a queue whose usage changes all the time."""
    await ward.queue(cpu="4")
    await ward.pod("blocker", cpu="3")
    await ward.runs("blocker")
    began = asyncio.get_running_loop().time()
    for number in range(60):
        await ward.pod(f"waits-{number:02}", cpu="4")
    await ward.until(all_say_why(60), "all say why")
    took_s = asyncio.get_running_loop().time() - began
    assert took_s >= (60 - BURST) / WRITES_PER_S - 1  # the bound holds
    pods = {pod["metadata"]["name"]: pod for pod in await ward.api.list(ward.pods_at)}
    messages = Counter(condition_of(pod).get("message", "").partition("-")[0] for pod in pods.values())
    assert messages["same as ward"] == 40

    versions = {name: pod["metadata"]["resourceVersion"] for name, pod in pods.items() if name != "blocker"}
    for number in range(8):  # numbers move every half second
        await ward.pod(f"brief-{number}", cpu="500m", labels={CLASS: "clinical"})
        await ward.runs(f"brief-{number}")
        await ward.delete(f"brief-{number}", grace_s=0)
        await asyncio.sleep(0.3)
    after = {pod["metadata"]["name"]: pod for pod in await ward.api.list(ward.pods_at)}
    written = [name for name, version in versions.items() if after[name]["metadata"]["resourceVersion"] != version]

    assert written == []
    assert is_running(after["blocker"])


async def test_a_restart_says_nothing_twice(ward: Ward):
    await ward.queue(cpu="1")
    await ward.pod("first")
    await ward.runs("first")
    for number in range(5):
        await ward.pod(f"waits-{number}")
    await ward.until(all_say_why(5), "all say why")
    before = {pod["metadata"]["name"]: pod["metadata"]["resourceVersion"] for pod in await ward.api.list(ward.pods_at)}

    await ward.hospital.service.restart()
    await asyncio.sleep(3)  # time in which they could be written again
    after: dict[str, Any] = {
        pod["metadata"]["name"]: pod["metadata"]["resourceVersion"] for pod in await ward.api.list(ward.pods_at)
    }

    assert after == before
