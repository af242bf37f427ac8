"""The hospital story, one test a step, on a real control plane through the shipped service."""

from __future__ import annotations

import asyncio
import re

import orjson
import pytest

from tests.e2e.installation import HOSPITAL, Installation
from tests.e2e.story import (
    ADMISSION,
    GATE,
    GPUS,
    RESEARCH,
    TESTING,
    Story,
    cpu_pod,
    is_running,
    is_waiting,
    names,
    pods_path,
    reason_of,
)
from tests.rig import ApiError

pytestmark = [pytest.mark.rig, pytest.mark.timeout(300)]

CLINICAL_SHARE = 60


async def test_1_at_night_research_uses_every_gpu(story: Story):
    running = await story.night()

    assert len(running) == GPUS
    assert await story.gpus_in_use() == GPUS
    assert all(ADMISSION in pod["metadata"]["annotations"] for pod in running)


async def test_2_a_clinical_pod_displaces_exactly_one_training_pod(story: Story, capsys: pytest.CaptureFixture[str]):
    await story.night()

    arrival = await story.clinical_arrives()

    with capsys.disabled():
        print(f"\nclinical pod: kubectl apply to Running in {arrival.seconds:.2f} s")
    assert len(arrival.evicted) == 1
    assert arrival.waiting not in arrival.evicted
    assert arrival.reason
    assert re.search(r"\d", arrival.message)
    assert await story.gpus_in_use() == GPUS


async def test_3_in_contention_the_weights_decide_and_it_stays_so(story: Story):
    await story.night()
    await story.clinical_arrives()

    clinical, research = await story.contention()
    before = names(await story.pods(RESEARCH)) + names(await story.pods("clinical"))
    await asyncio.sleep(10)  # the quiet that is claimed

    assert abs(clinical - CLINICAL_SHARE) <= 1
    assert clinical + research == GPUS
    assert names(await story.pods(RESEARCH)) + names(await story.pods("clinical")) == before


@pytest.mark.parametrize(
    ("queue", "want"),
    [
        pytest.param("outpatient", {"first": True, "big": False, "small": False}, id="StrictFIFO keeps the order"),
        pytest.param("emergency", {"first": True, "big": False, "small": True}, id="BestEffortFIFO lets it pass"),
    ],
)
async def test_4_a_small_job_behind_a_big_one(story: Story, queue: str, want: dict[str, bool]):
    assert await story.line_up(queue) == want


async def test_6_a_pod_without_its_gate_never_runs(story: Story, hospital: Installation):
    await hospital.set_stop_policy("emergency-cq", "Hold")
    try:
        await story.api.create(pods_path(TESTING), cpu_pod("tampered", "emergency", "1"))
        patch = {"spec": {"schedulingGates": [{"name": GATE, "$patch": "delete"}]}}
        with pytest.raises(ApiError) as refused:
            await story.api.patch(f"{pods_path(TESTING)}/tampered", patch, kind="strategic")
        assert refused.value.status in (403, 422)

        # Even where nobody guards the gate (here: as an identity that may), the scheduler is told no.
        config = await story.rig.service_account_kubeconfig("cohort-system", "cohort-extender")
        await story.rig.kubectl(
            *("patch", "pod", "tampered", "-n", TESTING, "--type=strategic", "-p", orjson.dumps(patch).decode()),
            config=config,
        )
        await hospital.set_stop_policy("emergency-cq", "None")
        await story.until(TESTING, _unschedulable("tampered"), "the scheduler is refused")
        (pod,) = await story.pods(TESTING)
        assert not is_waiting(pod)
        assert "nodeName" not in pod["spec"]
        await story.until(
            TESTING, lambda pods: {reason for reason, _ in map(reason_of, pods)} == {"Deactivated"}, "it says why"
        )
    finally:
        await hospital.set_stop_policy("emergency-cq", "None")


async def test_6_a_forged_admission_never_runs(story: Story, hospital: Installation):
    forged = orjson.dumps({"pod": "x", "podSet": "main", "clusterQueue": "emergency-cq", "atMs": 1, "podSets": []})
    with pytest.raises(ApiError) as refused:
        await story.api.create(pods_path(TESTING), cpu_pod("forged", "emergency", "1", **{ADMISSION: forged.decode()}))
    assert refused.value.status in (403, 422)


async def test_7_with_the_service_down_only_queued_pods_wait(story: Story, hospital: Installation):
    await hospital.service.kill()
    try:
        stranger = cpu_pod("stranger", "", "1")
        del stranger["metadata"]["annotations"]
        await story.api.create(pods_path(TESTING), stranger)
        await story.api.create(pods_path(TESTING), cpu_pod("queued", "emergency", "1"))

        await story.until(TESTING, lambda pods: names([*filter(is_running, pods)]) == ["stranger"], "the stranger runs")
        await asyncio.sleep(3)  # time in which the queued pod could slip through
        assert names([*filter(is_running, await story.pods(TESTING))]) == ["stranger"]
    finally:
        await hospital.service.start()

    await story.until(
        TESTING, lambda pods: names([*filter(is_running, pods)]) == ["queued", "stranger"], "the queued pod runs too"
    )


async def test_5_killed_in_the_middle_of_the_night(story: Story, hospital: Installation):
    await hospital.apply(HOSPITAL / "workloads" / "training-job.yaml")
    await story.until(RESEARCH, lambda pods: sum(map(is_running, pods)) >= 20, "some pods run")
    await hospital.service.kill()
    await hospital.service.start()

    first = names(await story.running(RESEARCH, GPUS))
    await asyncio.sleep(2)

    assert names([*filter(is_running, await story.pods(RESEARCH))]) == first
    assert await story.gpus_in_use() == GPUS


async def test_5_killed_when_the_clinical_pod_arrives(story: Story, hospital: Installation):
    before = {pod["metadata"]["uid"] for pod in await story.night()}
    await hospital.apply(HOSPITAL / "workloads" / "clinical-api.yaml")
    await hospital.service.kill()
    await hospital.service.start()

    await story.running("clinical", 1)
    await asyncio.sleep(2)
    left = {pod["metadata"]["uid"] for pod in await story.pods(RESEARCH) if is_running(pod)}

    assert len(before - left) == 1
    assert await story.gpus_in_use() == GPUS


async def test_5_killed_in_the_middle_of_contention(story: Story, hospital: Installation):
    await story.night()
    await story.clinical_arrives()
    scale = {"spec": {"replicas": 80}}
    await story.api.patch("/apis/apps/v1/namespaces/clinical/deployments/ldct-api", scale)
    await story.until("clinical", lambda pods: sum(map(is_running, pods)) >= 10, "contention is under way")
    await hospital.service.kill()
    await hospital.service.start()

    clinical, research = await story.settled()

    assert abs(clinical - CLINICAL_SHARE) <= 1
    assert clinical + research == GPUS


def _unschedulable(name: str):
    def refused(pods):
        return any(
            condition["type"] == "PodScheduled"
            and condition["status"] == "False"
            and "not admitted" in condition.get("message", "")
            for pod in pods
            if pod["metadata"]["name"] == name
            for condition in pod["status"].get("conditions", ())
        )

    return refused
