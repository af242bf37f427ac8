"""How pods are taken out: each once, gently, for a reason that it is told; and what comes after it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import orjson
import pytest
import pytest_asyncio

from tests.e2e.installation import Installation
from tests.e2e.story import is_running, is_waiting
from tests.e2e.ward import CLASS, KUEUE, QUEUE, Ward, condition_of, opened
from tests.rig import NodePool

pytestmark = [pytest.mark.rig, pytest.mark.timeout(300)]

POOLS = (NodePool("plain", 3),)
READY_S = 4
SETTINGS = {
    "waitForPodsReady": {
        "timeout": f"{READY_S}s",
        "recoveryTimeout": "2s",
        "requeuingStrategy": {"backoffBaseSeconds": 2, "backoffMaxSeconds": 10, "backoffLimitCount": 1},
    }
}
NOWHERE = {"nodeSelector": {"kubernetes.io/hostname": "nowhere"}}
MAX_TIME = "kueue.x-k8s.io/max-exec-time-seconds"


@pytest_asyncio.fixture(loop_scope="session")
async def ward(hospital: Installation) -> AsyncIterator[Ward]:
    for name, value in (("low", -10), ("high", 10)):
        body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": name}}
        await hospital.rig.api.patch(f"{KUEUE}/workloadpriorityclasses/{name}", {**body, "value": value}, "apply")
    async with opened(hospital) as ward:
        yield ward


async def deployment(ward: Ward, **pod_spec: object) -> None:
    """One replica, which is replaced whenever it is taken out."""
    container = {"name": "main", "image": "busybox:1.37", "resources": {"requests": {"cpu": "1"}}}
    template = {
        "metadata": {"labels": {"app": "web"}, "annotations": {QUEUE: "main"}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0, **pod_spec},
    }
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    made = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}
    await ward.rig.kubectl("apply", "-n", ward.name, "-f", "-", input=orjson.dumps(made))


async def the_pod(ward: Ward, reason: str, *, other_than: str = "") -> tuple[str, str]:
    """Wait until there is exactly one pod with that reason; its name and message."""

    def told(pods: dict) -> tuple[str, str] | None:
        if len(pods) != 1 or other_than in pods:
            return None
        ((name, pod),) = pods.items()
        condition = condition_of(pod)
        return (name, condition["message"]) if condition.get("reason") == reason else None

    found = await ward.until(told, f"one pod that says {reason}")
    assert found is not None
    return found


@pytest.mark.parametrize("whole", [True, False], ids=["ClusterQueue", "LocalQueue"])
async def test_a_queue_that_is_drained_lets_its_pods_go(ward: Ward, *, whole: bool):
    name = await ward.queue()
    await deployment(ward)
    (running,) = await ward.until(lambda pods: [one for one, pod in pods.items() if is_running(pod)], "it runs")
    if whole:
        await ward.edit_queue(name, stopPolicy="HoldAndDrain")
    else:
        await ward.edit_local_queue("main", stopPolicy="HoldAndDrain")

    _, message = await the_pod(ward, "Stopped", other_than=running)
    assert "is on HoldAndDrain" in message
    kind = "ClusterQueue" if whole else "LocalQueue"
    (event,) = await ward.events(running, f"EvictedDueTo{kind}Stopped")
    assert "is stopped and drained" in event["message"]


async def preempting(ward: Ward, **victim: object) -> None:
    """A full queue with one low pod; a high one wants its room."""
    await ward.queue(cpu="2", preemption={"withinClusterQueue": "LowerPriority"})
    await ward.pod("low", cpu="2", labels={CLASS: "low", "app": "low"}, **victim)
    await ward.runs("low")
    await ward.pod("high", cpu="2", labels={CLASS: "high"})


async def test_a_disruption_budget_is_respected_and_waited_for(ward: Ward):
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "keep"}}
    at = f"/apis/policy/v1/namespaces/{ward.name}/poddisruptionbudgets"
    await ward.api.create(at, {**budget, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "low"}}}})
    await preempting(ward)

    await ward.says("high", "VictimsLeaving", "1 of 1 preempted workloads")
    await asyncio.sleep(2)  # time in which it could be pushed out in spite of the budget
    assert await ward.running() == ["low"]

    await ward.api.delete(f"{at}/keep")
    await ward.runs("high")
    (event,) = await ward.events("low", "Preempted")
    assert f"makes room for {ward.name}/high" in event["message"]
    assert "gives back 2 cpu of any-node" in event["message"]
    assert "priority 10 against -10" in event["message"]
    assert f"preemptor path: /{ward.name}-main; preemptee path: /{ward.name}-main" in event["message"]


async def test_a_victims_room_is_charged_until_it_has_gone_and_then_held_for_the_preemptor(ward: Ward):
    slow = {"rig.cohort-extender.io/terminate-seconds": "3"}
    await preempting(ward, terminationGracePeriodSeconds=30, annotations=slow)
    await ward.until(lambda pods: "deletionTimestamp" in pods["low"]["metadata"], "the victim is told to go")
    await ward.pod("thief", cpu="1", labels={CLASS: "low"})
    await ward.pod("high-too", cpu="2", labels={CLASS: "high"})

    pods = await ward.until(lambda pods: "low" not in pods and pods, "the victim has gone")
    assert is_waiting(pods["thief"])
    await ward.runs("high")
    await asyncio.sleep(1)  # time in which the others could slip in
    assert await ward.running() == ["high"]
    assert len(await ward.events("low", "Preempted")) == 1


async def test_what_does_not_get_ready_is_put_back_and_in_the_end_stopped(ward: Ward):
    await ward.queue()
    await deployment(ward, **NOWHERE)
    (first,) = await ward.until(lambda pods: [*pods] if not any(map(is_waiting, pods.values())) else [], "admitted")

    second, message = await the_pod(ward, "BackOff", other_than=first)
    assert message.startswith("attempt 2 at ")
    assert message.endswith(f"its pods were not ready within {READY_S} s")
    (event,) = await ward.events(first, "EvictedDueToPodsReadyTimeout")
    assert event["message"] == f"its pods were not ready within {READY_S} s (attempt 1)"

    await ward.until(lambda pods: second in pods and not is_waiting(pods[second]), "the second attempt")
    _, message = await the_pod(ward, "Deactivated", other_than=second)
    assert message.startswith("stopped by waitForPodsReady after 2 attempts (backoffLimitCount 1)")


async def test_a_member_that_has_succeeded_counts_as_ready(ward: Ward):
    await ward.queue()
    for name in ("a", "b"):
        await ward.member(name, 2)
    await ward.runs("a", "b")
    await ward.annotate("a", finish="true")
    await asyncio.sleep(READY_S + 1)  # longer than both time-outs

    assert await ward.running() == ["b"]


async def test_what_was_ready_has_to_recover(ward: Ward):
    await ward.queue()
    for name in ("a", "b"):
        await ward.member(name, 2)
    await ward.runs("a", "b")
    await ward.annotate("a", fail="true")  # and nobody replaces it

    await ward.gone("b")
    (event,) = await ward.events("b", "EvictedDueToPodsReadyTimeout")
    assert event["message"] == "its pods were not again ready within 2 s (attempt 1)"


async def test_a_pod_may_run_no_longer_than_it_says(ward: Ward):
    await ward.queue()
    await ward.pod("short", labels={MAX_TIME: "2"})
    await ward.runs("short")

    await ward.gone("short")
    (event,) = await ward.events("short", "EvictedDueToDeactivatedDueToMaximumExecutionTimeExceeded")
    assert event["message"] == "its maximum execution time of 2 s is over"


async def test_a_group_that_ran_long_enough_is_not_started_again(ward: Ward):
    await ward.queue()
    for name in ("a", "b"):
        await ward.member(name, 2, labels={MAX_TIME: "2"})
    await ward.runs("a", "b")
    await ward.gone("a", "b")
    for name in ("c", "d"):
        await ward.member(name, 2, labels={MAX_TIME: "2"})

    said = await ward.says("d", "Deactivated")
    assert said == "stopped by its maximum execution time of 2 s; delete the group's pods to start over"
