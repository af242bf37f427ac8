"""The examples as they stand, as somebody tries them who knows only the reference's documentation."""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
import sys
from typing import Any

import pytest
from rich.console import Console

from extender.cli.jobs import describe_job
from tests.e2e.installation import MANIFESTS
from tests.jobs.lab import ADMISSION, Lab, annotation, is_admitted, is_running, pods_of
from tests.rig import NodePool

pytestmark = [pytest.mark.rig, pytest.mark.timeout(240)]

EXAMPLES = MANIFESTS / "examples" / "jobs"
JOBS = "/apis/batch/v1/namespaces/jobs/jobs"
PODS = "/api/v1/namespaces/jobs/pods"
QUEUE = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/jobs-cq"
OPENED = {"pools": (NodePool("plain", 4, {"color": "blue"}, capacity={"cpu": 16, "pods": 100}),)}


async def running(lab: Lab, name: str, count: int) -> list[dict[str, Any]]:
    """Wait until so many pods of a Job run."""

    def enough(pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
        found = [pod for pod in pods_of(pods, name) if is_running(pod)]
        return found if len(found) == count else []

    return await lab.api.wait_for(PODS, enough, what=f"{count} pods of {name} run")


@contextlib.asynccontextmanager
async def applied(lab: Lab, name: str):
    """An example, applied and in the end deleted."""
    await lab.installation.apply(EXAMPLES / "queues.yaml")
    await lab.installation.apply(EXAMPLES / f"{name}.yaml")
    try:
        yield
    finally:
        await lab.rig.kubectl("delete", "-f", EXAMPLES / f"{name}.yaml")
        await lab.api.delete(JOBS, propagationPolicy="Background")
        await lab.api.delete(PODS, grace_s=0)
        await lab.api.wait_for(PODS, lambda pods: not pods, what="no pods")


def said(text: Any) -> str:
    """What the command line prints."""
    console = Console(file=io.StringIO(), width=200)
    console.print(text)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("example", "name", "pods"),
    [
        pytest.param("job", "plain", 2, id="suspended by its author"),
        pytest.param("job-once", "once", 2, id="backoffLimit 0"),
        pytest.param("job-indexed", "indexed", 3, id="Indexed"),
    ],
)
async def test_a_job_runs_survives_an_eviction_and_runs_again(lab: Lab, example: str, name: str, pods: int):
    async with applied(lab, example):
        await running(lab, name, pods)
        admitted = said(describe_job(await lab.api.get(f"{JOBS}/{name}"), await lab.api.list(PODS)))
        await lab.api.patch(QUEUE, {"spec": {"stopPolicy": "HoldAndDrain"}})
        await lab.api.wait_for(PODS, lambda found: not found, what="no pods")
        waiting = said(describe_job(await lab.api.get(f"{JOBS}/{name}"), []))
        await lab.api.patch(QUEUE, {"spec": {"stopPolicy": "None"}})
        await running(lab, name, pods)
        found = await lab.api.get(f"{JOBS}/{name}")

        assert found["status"].get("failed", 0) == 0
        assert not any(one["type"] == "Failed" for one in found["status"].get("conditions", ()))
        assert re.search(rf"admitted by ClusterQueue jobs-cq: {pods} pods, \S+ cpu of flavor any", admitted)
        assert re.search(rf"{pods} (running|pending)", admitted)
        assert "was evicted and is queued again" in waiting


async def test_the_command_line_explains_a_job_as_one_line_with_its_pods(lab: Lab):
    async with applied(lab, "job"):
        await running(lab, "plain", 2)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", "from extender.cli.plugin import main; main()"),
            *("explain", "job", "plain", "-n", "jobs", "--kubeconfig", str(lab.rig.kubeconfig("admin"))),
            stdout=asyncio.subprocess.PIPE,
        )
        told, _ = await process.communicate()

    assert process.returncode == 0
    assert "admitted by ClusterQueue jobs-cq: 2 pods" in told.decode()
    assert "pods: 2 running" in told.decode()


async def test_partial_admission_takes_what_there_is(lab: Lab):
    async with applied(lab, "job-partial"):
        await running(lab, "partial", 6)
    async with applied(lab, "job"):
        await running(lab, "plain", 2)
        await lab.installation.apply(EXAMPLES / "job-indexed.yaml")
        await running(lab, "indexed", 3)
        await lab.installation.apply(EXAMPLES / "job-partial.yaml")
        await running(lab, "partial", 3)
        found = await lab.api.get(f"{JOBS}/partial")

        assert (found["spec"]["parallelism"], found["spec"]["completions"]) == (3, 6)


async def test_a_cron_jobs_job_is_queued(lab: Lab):
    async with applied(lab, "cronjob"):
        await lab.rig.kubectl("create", "job", "now", "--from=cronjob/hourly", "-n", "jobs")
        (found,) = await lab.api.wait_for(
            JOBS, lambda jobs: [one for one in jobs if is_admitted(one)], what="the Job is admitted"
        )

        assert found["metadata"]["ownerReferences"][0]["kind"] == "CronJob"
        await running(lab, found["metadata"]["name"], 1)


@pytest.mark.parametrize(("example", "count"), [("deployment", 2), ("statefulset", 3)])
async def test_each_pod_is_admitted(lab: Lab, example: str, count: int):
    async with applied(lab, example):
        pods = await lab.api.wait_for(
            PODS,
            lambda found: [pod for pod in found if is_running(pod)] if sum(map(is_running, found)) == count else [],
            what=f"{count} pods run",
        )

        assert all(annotation(pod, ADMISSION) for pod in pods)
