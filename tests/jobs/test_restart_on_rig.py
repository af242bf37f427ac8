"""Truth after a crash: what a new leader makes of each state that a Job can be found in.

The service is killed before or after the PATCH that leads into the state; states that our guard forbids to everybody
else are made with the service's own account.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest

from tests.e2e.installation import NAMESPACE
from tests.jobs.lab import (
    ACTIVE,
    ADMISSION,
    EVICTED,
    JOBS,
    LAB,
    PODS,
    Lab,
    a_while,
    annotation,
    as_json,
    is_admitted,
    is_running,
    job,
    pods_of,
)

pytestmark = [pytest.mark.rig, pytest.mark.timeout(240)]

SLOW = {"rig.cohort-extender.io/terminate-seconds": "5"}


async def waiting(lab: Lab) -> None:
    """Killed before the admission: nothing has happened."""
    await lab.installation.service.kill()
    await lab.submit(job("train"))


async def admitted(lab: Lab) -> None:
    """Killed right after the admission."""
    await lab.submit(job("train"))
    await lab.admitted("train")
    await lab.installation.service.kill()


async def admitted_and_running(lab: Lab) -> None:
    """Killed while it runs."""
    await lab.submit(job("train"))
    await lab.running("train", 2)
    await lab.installation.service.kill()


async def evicted_and_draining(lab: Lab) -> None:
    """Killed right after the eviction; the pods take their time."""
    await lab.submit(job("train", pod_annotations=SLOW))
    await lab.running("train", 2)
    await lab.stop_queue("HoldAndDrain")
    await lab.until_job("train", lambda found: annotation(found, EVICTED) is not None, "evicted")
    await lab.installation.service.kill()
    await lab.stop_queue("None")


async def evicted_and_drained(lab: Lab) -> None:
    """Killed right after the eviction; the pods end while nobody is there."""
    await evicted_and_draining(lab)
    await lab.until_pods(lambda pods: not pods, "the pods are gone")


async def suspended_by_hand(lab: Lab) -> None:
    """Suspended by hand while nobody is there."""
    await admitted_and_running(lab)
    await lab.api.patch(f"{JOBS}/train", {"spec": {"suspend": True}})
    await lab.until_pods(lambda pods: not pods, "the pods are gone")


async def started_by_hand(lab: Lab) -> None:
    """Started by somebody whom the guard does not stop, while nobody is there."""
    await waiting(lab)
    config = await lab.rig.service_account_kubeconfig(NAMESPACE, "cohort-extender")
    patch = orjson.dumps({"spec": {"suspend": False}}).decode()
    await lab.rig.kubectl("patch", "job", "train", "-n", LAB, "--type=merge", "-p", patch, config=config)
    await lab.until_pods(lambda pods: len(pods) == 2, "ungated by nobody, two pods wait")


@pytest.mark.parametrize(
    ("state", "runs", "same"),
    [
        pytest.param(waiting, True, False, id="suspended, no admission: it waits, and is admitted"),
        pytest.param(admitted, True, True, id="admitted: it stays so"),
        pytest.param(admitted_and_running, True, True, id="admitted and running: it stays so"),
        pytest.param(evicted_and_draining, True, False, id="evicted, pods end: admitted anew when they have"),
        pytest.param(evicted_and_drained, True, False, id="evicted, no pods: admitted anew"),
        pytest.param(suspended_by_hand, False, False, id="admitted, suspended by hand: stopped until its owner says"),
        pytest.param(started_by_hand, True, False, id="started without admission: suspended, then admitted"),
    ],
)
async def test_a_new_leader_goes_on_from(lab: Lab, state: Callable[[Lab], Awaitable[None]], runs: bool, same: bool):
    await state(lab)
    before = await lab.job("train")
    pods_before = {pod["metadata"]["uid"] for pod in pods_of(await lab.api.list(PODS), "train")}
    await lab.installation.service.start()

    if runs:
        await lab.admitted("train")
        pods = await lab.running("train", 2)
        after = await lab.job("train")
        kept = annotation(after, ADMISSION) == annotation(before, ADMISSION)
        assert kept is same
        assert same is False or pods_before <= {pod["metadata"]["uid"] for pod in pods}
        assert annotation(after, EVICTED) is None
        await lab.until_used(blue=2, green=0)
    else:
        await lab.until_job("train", lambda found: annotation(found, ACTIVE) == "false", "stopped")
        await lab.until_used(blue=0, green=0)
    assert (await lab.job("train"))["status"].get("failed", 0) == 0


async def test_what_was_charged_before_the_crash_is_charged_after_it(lab: Lab):
    await lab.quota(blue=2)
    await evicted_and_draining(lab)
    await lab.submit(job("next"))
    await lab.installation.service.start()
    await lab.installation.service.kill()
    await lab.installation.service.start()
    await lab.until_used(blue=2)
    most = 0

    def one_runs(pods: list[dict[str, Any]]) -> bool:
        nonlocal most
        most = max(most, sum(pod["status"].get("phase") == "Running" for pod in pods))
        return sum(map(is_running, pods)) == 2

    await lab.until_pods(one_runs, "one of both runs")
    await a_while()
    jobs = [await lab.job(name) for name in ("train", "next")]

    assert most == 2
    assert sum(map(is_admitted, jobs)) == 1
    await lab.until_used(blue=2)


async def test_evict_and_admit_faster_than_the_job_controller_sees(lab: Lab):
    await lab.submit(job("train"))
    await lab.running("train", 2)
    controller = lab.rig.component("kube-controller-manager")
    controller.pause()
    try:
        await lab.stop_queue("HoldAndDrain")
        await lab.until_job("train", lambda found: annotation(found, EVICTED) is not None, "evicted")
        await lab.stop_queue("None")
        # Its controller has not stopped it: what runs is charged, and it is not admitted again over it.
        await lab.until_used(blue=2, green=0)
        assert not is_admitted(await lab.job("train"))
    finally:
        controller.resume()
    await lab.admitted("train")
    pods = await lab.running("train", 2)
    found = await lab.job("train")

    given = as_json(annotation(found, ADMISSION))["id"]
    ids = {as_json(annotation(pod, "cohort-extender.io/unit-admission"))["id"] for pod in pods}
    assert ids == {given}
    assert found["status"].get("failed", 0) == 0
