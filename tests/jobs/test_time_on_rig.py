"""A Job whose pods do not get ready waits and comes back; one that has had its time stops and says so."""

from __future__ import annotations

import pytest

from tests.jobs.lab import ACTIVE, ADMISSION, JOBS, Lab, annotation, as_json, is_admitted, job, reason_of

pytestmark = [pytest.mark.rig, pytest.mark.slow, pytest.mark.timeout(180)]

OPENED = {
    "settings": {
        "waitForPodsReady": {
            "timeout": "4s",
            "requeuingStrategy": {"backoffBaseSeconds": 8, "backoffMaxSeconds": 8, "backoffLimitCount": 1},
        }
    }
}
NOWHERE = {"nodeSelector": {"zone": "nowhere"}}


async def test_pods_that_are_not_ready_in_time(lab: Lab):
    stuck = job("stuck")
    stuck["spec"]["template"]["spec"] |= NOWHERE
    await lab.api.create(JOBS, stuck)
    first = await lab.admitted("stuck")
    waits = await lab.until_job("stuck", lambda one: reason_of(one)[0] == "BackOff", "waits for its next attempt")
    again = await lab.until_job("stuck", lambda one: is_admitted(one) and _id(one) != _id(first), "second attempt")
    over = await lab.until_job("stuck", lambda one: annotation(one, ACTIVE) == "false", "stopped for good")
    told = await lab.until_job("stuck", lambda one: reason_of(one)[0] == "Deactivated", "told")
    await lab.until_used(blue=0, green=0)
    await lab.api.patch(f"{JOBS}/stuck", {"metadata": {"annotations": {ACTIVE: None}}})
    await lab.until_job("stuck", lambda one: is_admitted(one) and _id(one) != _id(again), "let in again")

    assert waits["spec"]["suspend"] is True
    assert over["status"].get("failed", 0) == 0
    assert reason_of(told)[1].startswith("stopped by waitForPodsReady")


async def test_a_job_has_its_time_and_no_more(lab: Lab):
    await lab.submit(job("long", labels={"kueue.x-k8s.io/max-exec-time-seconds": "3"}))
    await lab.running("long", 2)
    over = await lab.until_job("long", lambda one: annotation(one, ACTIVE) == "false", "stopped")
    await lab.until_used(blue=0, green=0)

    assert (annotation(over, ADMISSION), over["spec"]["suspend"]) == (None, True)
    assert "MaximumExecutionTimeExceeded" in (annotation(over, "cohort-extender.io/requeue") or "")


def _id(found: dict) -> str:
    return as_json(annotation(found, ADMISSION))["id"]
