"""A Job's way by ``spec.suspend``, on a real control plane: held, admitted, evicted, drained, admitted elsewhere."""

from __future__ import annotations

import pytest

from tests.jobs.lab import (
    ADMISSION,
    EVICTED,
    JOBS,
    MANAGED,
    Lab,
    a_while,
    annotation,
    as_json,
    is_admitted,
    job,
    pods_of,
)

pytestmark = [pytest.mark.rig, pytest.mark.timeout(180)]


async def test_a_queued_job_is_held_at_creation_and_runs_when_admitted(lab: Lab):
    await lab.stop_queue("Hold")
    made = await lab.submit(job("train"))
    await a_while()
    waiting = await lab.job("train")
    await lab.stop_queue("None")
    admitted = await lab.admitted("train")
    pods = await lab.running("train", 2)

    assert made["spec"]["suspend"] is True
    assert made["metadata"]["labels"][MANAGED] == "true"
    assert waiting["spec"]["suspend"] is True
    assert annotation(waiting, ADMISSION) is None
    assert admitted["spec"]["template"]["spec"]["nodeSelector"] == {"color": "blue"}
    assert {pod["spec"]["nodeSelector"]["color"] for pod in pods} == {"blue"}
    await lab.until_used(blue=2, green=0)


async def test_an_evicted_job_counts_no_failure_and_moves_to_the_other_flavor_without_a_trace(lab: Lab):
    await lab.submit(job("train"))
    await lab.running("train", 2)
    await lab.quota(green=4)
    await lab.stop_queue("HoldAndDrain")
    evicted = await lab.until_job("train", lambda found: annotation(found, EVICTED) is not None, "evicted")
    await lab.until_pods(lambda pods: not pods, "the pods are gone")
    await lab.stop_queue("None")
    admitted = await lab.admitted("train")
    await lab.running("train", 2)
    found = await lab.job("train")

    assert evicted["spec"]["suspend"] is True
    assert annotation(evicted, ADMISSION) is None
    assert found["status"].get("failed", 0) == 0
    assert admitted["spec"]["template"]["spec"]["nodeSelector"] == {"color": "green"}
    assert [one["value"] for one in admitted["spec"]["template"]["spec"]["tolerations"]] == ["green"]
    assert annotation(admitted, EVICTED) is None


async def test_quota_is_free_only_when_the_pods_have_ended_and_the_evicted_job_keeps_its_place(lab: Lab):
    slow = {"rig.cohort-extender.io/terminate-seconds": "4"}
    await lab.priority("urgent", 100)
    await lab.quota(blue=2)
    await lab.submit(job("slow", pod_annotations=slow))
    await lab.running("slow", 2)
    await a_while(1.1)  # times of creation have whole seconds
    await lab.submit(job("later"))
    await lab.submit(job("urgent", labels={"kueue.x-k8s.io/priority-class": "urgent"}))
    await lab.until_job("slow", lambda found: annotation(found, EVICTED) is not None, "evicted")
    await a_while(1.5)
    meanwhile = await lab.job("urgent")
    await lab.admitted("urgent")
    left = [pod for pod in await lab.api.list("/api/v1/namespaces/lab/pods") if pod in pods_of([pod], "slow")]

    assert not is_admitted(meanwhile)
    assert [pod for pod in left if pod["status"]["phase"] == "Running"] == []
    await lab.running("urgent", 2)
    waiting = await lab.job("slow")
    assert waiting["status"].get("failed", 0) == 0
    assert as_json(annotation(waiting, "cohort-extender.io/requeue"))["count"] == 1
    # Up to 1.35 it is we who clear the start time, and it is not ready to start before.
    await lab.until_job("slow", lambda found: not found["status"].get("startTime"), "ready to start again")
    await lab.api.delete(f"{JOBS}/urgent", propagationPolicy="Background")
    await lab.running("slow", 2)
    assert not is_admitted(await lab.job("later"))
