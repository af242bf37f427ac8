"""Jobs of every shape: in part, growing, shrinking, finishing, by a CronJob, of another controller, deleted."""

from __future__ import annotations

import pytest

from tests.jobs.lab import (
    ACTIVE,
    ADMISSION,
    EVICTED,
    JOBS,
    LAB,
    OVERLAY,
    PODS,
    QUEUE,
    Lab,
    a_while,
    annotation,
    as_json,
    is_admitted,
    is_running,
    job,
    pods_of,
    reason_of,
)
from tests.rig import ApiError

pytestmark = [pytest.mark.rig, pytest.mark.timeout(180)]

MIN = "kueue.x-k8s.io/job-min-parallelism"


async def test_partial_admission_lowers_the_parallelism_and_an_eviction_puts_it_back(lab: Lab):
    await lab.quota(blue=3)
    await lab.submit(job("part", pods=5, annotations={MIN: "2"}, completionMode="Indexed"))
    admitted = await lab.admitted("part")
    await lab.running("part", 3)
    await lab.until_used(blue=3)
    with pytest.raises(ApiError) as refused:
        await lab.api.patch(f"{JOBS}/part", {"spec": {"parallelism": 4}})
    await lab.stop_queue("HoldAndDrain")
    evicted = await lab.until_job("part", lambda found: annotation(found, EVICTED) is not None, "evicted")

    assert (admitted["spec"]["parallelism"], admitted["spec"]["completions"]) == (3, 5)
    assert refused.value.status == 422
    assert (evicted["spec"]["parallelism"], evicted["spec"]["completions"]) == (5, 5)


async def test_a_job_that_needs_more_than_its_minimum_allows_waits_and_says_why(lab: Lab):
    await lab.quota(blue=1)
    await lab.submit(job("part", pods=5, annotations={MIN: "2"}))

    found = await lab.until_job("part", lambda one: reason_of(one)[1], "says why")
    assert not is_admitted(found)
    assert reason_of(found)[0] == "ExceedsMaxQuota"


async def test_quota_of_pods_that_will_not_be_made_any_more_is_free(lab: Lab):
    await lab.submit(job("train", pods=4))
    pods = await lab.running("train", 4)
    await lab.until_used(blue=4)
    for pod in pods[:2]:
        finish = {"metadata": {"annotations": {"rig.cohort-extender.io/finish": "true"}}}
        await lab.api.patch(f"{PODS}/{pod['metadata']['name']}", finish)

    await lab.until_used(blue=2)
    await lab.submit(job("next", pods=2))
    await lab.running("next", 2)


async def test_a_running_job_grows_within_its_quota_and_never_loses_what_runs(lab: Lab):
    await lab.submit(job("grow", pods=2, completions=None))
    before = await lab.running("grow", 2)
    await lab.api.patch(f"{JOBS}/grow", {"spec": {"parallelism": 6}})
    await a_while()
    # Four fit on blue; the Job stays on its flavor, so all of its growth waits until all of it fits.
    held = [pod for pod in await lab.api.list(PODS) if is_running(pod)]
    await lab.quota(blue=6, green=4)
    after = await lab.running("grow", 6)

    assert len(held) == 2
    assert {pod["metadata"]["uid"] for pod in before} <= {pod["metadata"]["uid"] for pod in after}
    found = await lab.job("grow")
    assert as_json(annotation(found, ADMISSION))["podSets"][0]["count"] == 6
    await lab.until_used(blue=6)


async def test_a_shrunk_job_gives_quota_back_and_asks_anew_to_grow_again(lab: Lab):
    await lab.submit(job("flex", pods=4, completions=None))
    await lab.running("flex", 4)
    await lab.api.patch(f"{JOBS}/flex", {"spec": {"parallelism": 1}})
    await lab.until_used(blue=1)
    await lab.submit(job("other", pods=3))
    await lab.running("other", 3)
    await lab.api.patch(f"{JOBS}/flex", {"spec": {"parallelism": 4}})
    await a_while()

    running = [pod for pod in pods_of(await lab.api.list(PODS), "flex") if is_running(pod)]
    assert len(running) == 1
    await lab.until_used(blue=4)


async def test_suspending_by_hand_stops_a_job_until_its_owner_queues_it_again(lab: Lab):
    await lab.submit(job("train"))
    await lab.running("train", 2)
    await lab.api.patch(f"{JOBS}/train", {"spec": {"suspend": True}})
    stopped = await lab.until_job("train", lambda found: annotation(found, ACTIVE) == "false", "stopped")
    await lab.until_used(blue=0)
    await a_while()
    still = await lab.until_job("train", lambda found: reason_of(found)[0] == "Deactivated", "told")
    await lab.api.patch(f"{JOBS}/train", {"metadata": {"annotations": {ACTIVE: None}}})
    await lab.running("train", 2)

    assert annotation(stopped, ADMISSION) is None
    assert not is_admitted(still)
    assert (await lab.job("train"))["status"].get("failed", 0) == 0


async def test_nobody_else_starts_a_queued_job(lab: Lab):
    await lab.stop_queue("Hold")
    await lab.submit(job("train"))
    with pytest.raises(ApiError) as refused:
        await lab.api.patch(f"{JOBS}/train", {"spec": {"suspend": False}})

    assert refused.value.status == 403
    assert "started by cohort-extender only" in str(refused.value)


@pytest.mark.parametrize(
    "annotations", [pytest.param({ADMISSION: "{}"}, id="an admission"), pytest.param({EVICTED: "{}"}, id="an eviction")]
)
async def test_nobody_else_writes(lab: Lab, annotations: dict[str, str]):
    """The guard refuses it; where the webhook marks the Job, it takes it away before the guard looks."""
    refused, made = 0, {}
    try:
        made = await lab.submit(job("forged", annotations=annotations))
    except ApiError as error:
        refused = error.status

    assert refused == (403 if OVERLAY == "default" else 0)
    assert not made or annotations.keys().isdisjoint(made["metadata"].get("annotations", {}))


async def test_a_cron_jobs_jobs_are_queued(lab: Lab):
    inner = job("x")
    cron = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "nightly", "namespace": LAB},
        "spec": {
            "schedule": "* * * * *",
            "suspend": True,
            "jobTemplate": {"metadata": {"labels": {QUEUE: "lab"}}, "spec": inner["spec"]},
        },
    }
    crons = f"/apis/batch/v1/namespaces/{LAB}/cronjobs"
    made = await lab.api.create(crons, cron)
    try:
        owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "controller": True}
        inner["metadata"]["ownerReferences"] = [{**owner, "uid": made["metadata"]["uid"]}]
        held = await lab.submit(inner)
        await lab.running("x", 2)

        assert held["spec"]["suspend"] is True
    finally:
        await lab.api.delete(f"{crons}/nightly")


async def test_a_job_of_another_controller_is_left_alone(lab: Lab):
    made = await lab.submit(job("theirs", managedBy="example.com/other"))
    await a_while()
    found = await lab.job("theirs")

    assert made["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]
    assert "suspend" not in found["spec"] or found["spec"]["suspend"] is False
    assert "cohort-extender.io/managed" not in found["metadata"]["labels"]


async def test_pods_that_outlive_their_job_are_charged_until_they_end(lab: Lab):
    await lab.submit(job("train"))
    await lab.running("train", 2)
    await lab.api.delete(f"{JOBS}/train", propagationPolicy="Orphan")
    await lab.api.wait_for(JOBS, lambda jobs: not jobs, what="the Job is gone")
    await a_while()
    await lab.until_used(blue=2)
    await lab.installation.service.kill()
    await lab.installation.service.start()
    await a_while()
    await lab.until_used(blue=2)
    await lab.api.delete(PODS, grace_s=0)

    await lab.until_used(blue=0)


async def test_a_finished_job_uses_nothing(lab: Lab):
    await lab.submit(job("short", pod_annotations={"rig.cohort-extender.io/run-seconds": "1"}))
    await lab.until_job("short", lambda found: found["status"].get("succeeded") == 2, "finished")

    await lab.until_used(blue=0)


async def test_a_job_whose_template_names_the_queue_goes_pod_by_pod(lab: Lab):
    made = await lab.submit(job("pods", queue="", pod_annotations={QUEUE: "lab"}))
    pods = await lab.running("pods", 2)

    assert made["spec"].get("suspend", False) is False
    assert all(annotation(pod, ADMISSION) for pod in pods)
    await lab.until_used(blue=2)


async def test_a_queue_on_the_job_and_on_its_template_is_counted_once(lab: Lab):
    await lab.submit(job("both", pod_annotations={QUEUE: "lab"}))
    pods = await lab.running("both", 2)
    await a_while()

    assert all(annotation(pod, ADMISSION) is None for pod in pods)
    assert await lab.used() == {"blue": 2, "green": 0}
