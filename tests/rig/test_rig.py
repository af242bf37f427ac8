"""The rig keeps its promises, tried on the real thing."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.rig import ApiError, KubectlError, NodePool, ProcessError, Rig
from tests.rig.nodes import is_schedulable

pytestmark = pytest.mark.rig

RIG = {"nodes": [NodePool("gpu", 2, capacity={"nvidia.com/gpu": 8}), NodePool("cpu", 1)]}
ROOT = Path(__file__).resolve().parents[2]
START_S_MAX = 25.0
PODS = "/api/v1/namespaces/default/pods"


def pod(name: str, *, gpus: int = 1, **wishes: str) -> dict[str, Any]:
    """A pod whose simulated life follows *wishes*, e.g. run_seconds="2"."""
    annotations = {f"rig.cohort-extender.io/{k.replace('_', '-')}": v for k, v in wishes.items()}
    container = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"containers": [container]},
    }


async def in_phase(rig: Rig, name: str, phase: str, timeout_s: float = 20) -> dict[str, Any]:
    """Wait until the pod is in *phase*; the pod."""

    def found(pods: list[dict[str, Any]]) -> dict[str, Any] | None:
        return next((each for each in pods if each["status"].get("phase") == phase), None)

    result = await rig.wait_for(PODS, found, timeout_s=timeout_s, what=phase, fieldSelector=f"metadata.name={name}")
    assert result is not None
    return result


async def gone(rig: Rig, name: str, timeout_s: float = 20) -> None:
    """Wait until the pod is deleted."""
    selector = f"metadata.name={name}"
    await rig.wait_for(PODS, lambda pods: not pods, timeout_s=timeout_s, what="gone", fieldSelector=selector)


async def test_a_pod_runs_on_a_simulated_node_and_ends_after_its_seconds(rig):
    started = time.monotonic()
    await rig.api.create(PODS, pod("two-seconds", run_seconds="2"))

    running = await in_phase(rig, "two-seconds", "Running")
    ready = {each["type"]: each["status"] for each in running["status"]["conditions"]}
    await in_phase(rig, "two-seconds", "Succeeded")

    assert running["spec"]["nodeName"].startswith("gpu-")
    assert ready["Ready"] == "True"
    assert 2 <= time.monotonic() - started < 5


async def test_a_pod_without_wishes_keeps_running_until_told_to_finish(rig):
    await rig.api.create(PODS, pod("until-told"))
    await in_phase(rig, "until-told", "Running")

    wish = {"metadata": {"annotations": {"rig.cohort-extender.io/finish": "true"}}}
    await rig.api.patch(f"{PODS}/until-told", wish)

    ended = await in_phase(rig, "until-told", "Succeeded")
    assert ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0


async def test_a_pod_fails_on_demand_before_its_time(rig):
    await rig.api.create(PODS, pod("fails", run_seconds="600"))
    await in_phase(rig, "fails", "Running")

    wish = {"metadata": {"annotations": {"rig.cohort-extender.io/fail": "true"}}}
    await rig.api.patch(f"{PODS}/fails", wish)

    ended = await in_phase(rig, "fails", "Failed")
    assert ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 1


async def test_a_patched_pod_does_not_start_its_seconds_anew(rig):
    await rig.api.create(PODS, pod("patched", run_seconds="3"))
    started = time.monotonic()
    await in_phase(rig, "patched", "Running")
    for turn in range(4):
        await asyncio.sleep(0.5)
        await rig.api.patch(f"{PODS}/patched", {"metadata": {"labels": {"turn": str(turn)}}})

    await in_phase(rig, "patched", "Succeeded")

    assert time.monotonic() - started < 5


async def test_deletion_is_immediate_or_slow_but_within_its_grace(rig):
    for name, wishes in (
        ("quick", {}),
        ("slow", {"terminate_seconds": "2"}),
        ("endless", {"terminate_seconds": "600"}),
    ):
        await rig.api.create(PODS, pod(name, **wishes))
        await in_phase(rig, name, "Running")
    took = {}

    async def delete(name: str, grace_s: int) -> None:
        started = time.monotonic()
        await rig.api.delete(f"{PODS}/{name}", grace_s=grace_s)
        await gone(rig, name)
        took[name] = time.monotonic() - started

    await asyncio.gather(delete("quick", 30), delete("slow", 30), delete("endless", 3))

    assert took["quick"] < 1.5
    assert 2 <= took["slow"] < 4.5
    assert 2 <= took["endless"] < 4.5


async def test_a_job_runs_through_its_controller(rig):
    template = pod("unused", run_seconds="1")
    template["spec"]["restartPolicy"] = "Never"
    job = {
        "metadata": {"name": "batch"},
        "spec": {
            "completions": 3,
            "parallelism": 3,
            "template": {"metadata": {"annotations": template["metadata"]["annotations"]}} | {"spec": template["spec"]},
        },
    }
    jobs = "/apis/batch/v1/namespaces/default/jobs"

    await rig.api.create(jobs, job)

    await rig.wait_for(jobs, lambda jobs: jobs[0]["status"].get("succeeded") == 3)


async def test_kubectl_applies_and_says_what_is_wrong(rig):
    manifest = "{apiVersion: v1, kind: ConfigMap, metadata: {name: here}, data: {a: b}}"
    await rig.kubectl("apply", "-f", "-", input=manifest)

    with pytest.raises(KubectlError, match='"nowhere" not found'):
        await rig.kubectl("get", "configmap", "nowhere")

    assert await rig.kubectl("get", "configmap", "here", "-o", "jsonpath={.data.a}") == "b"


async def test_a_service_account_may_do_only_what_rbac_grants(rig):
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    await rig.api.create(accounts, {"metadata": {"name": "reader"}})
    await rig.kubectl("create", "rolebinding", "readers", "--clusterrole=view", "--serviceaccount=default:reader")

    config = await rig.service_account_kubeconfig("default", "reader")

    await rig.kubectl("get", "pods", config=config)
    with pytest.raises(KubectlError, match="forbidden"):
        await rig.kubectl("get", "nodes", config=config)
    with pytest.raises(KubectlError, match="forbidden"):
        await rig.kubectl("delete", "pods", "--all", config=config)


async def test_a_rotated_token_replaces_the_file_and_both_work(rig):
    await rig.api.create("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "rotating"}})
    config = await rig.service_account_kubeconfig("default", "rotating")
    token = rig.directory / "default-rotating.token"
    first = token.read_text()

    assert await rig.service_account_kubeconfig("default", "rotating") == config

    assert token.read_text() != first
    async with rig.api_as(token.read_text()) as api:
        with pytest.raises(ApiError) as refused:
            await api.list(PODS)
    assert (refused.value.status, refused.value.reason) == (403, "Forbidden")


async def test_nobody_without_a_name_may_read(rig):
    async with rig.api_as("not-a-token") as api:
        with pytest.raises(ApiError) as refused:
            await api.list(PODS)

    assert refused.value.status == 401


async def test_a_killed_api_server_comes_back_with_its_data(rig):
    await rig.api.create(PODS, pod("before"))
    await in_phase(rig, "before", "Running")

    await rig.component("kube-apiserver").restart()

    assert (await rig.api.get(f"{PODS}/before"))["status"]["phase"] == "Running"
    await rig.api.create(PODS, pod("after"))
    await in_phase(rig, "after", "Running")


@pytest.mark.parametrize("name", ["etcd", "kube-scheduler", "kube-controller-manager", "kwok"])
async def test_a_killed_component_does_its_work_again_after_a_restart(rig, name):
    component = rig.component(name)
    await component.kill()
    assert not component.running

    await component.start()

    await rig.wait_for(PODS, lambda _: True, what="the API server answers")
    await rig.api.create(PODS, pod(f"after-{name}"))
    await in_phase(rig, f"after-{name}", "Running", timeout_s=30)


async def test_pods_bound_while_the_kubelets_are_down_run_when_they_are_back(rig):
    kwok = rig.component("kwok")
    await kwok.kill()
    await rig.api.create(PODS, pod("patient"))
    await rig.wait_for(PODS, lambda pods: pods[0]["spec"].get("nodeName"), fieldSelector="metadata.name=patient")

    await kwok.start()

    await in_phase(rig, "patient", "Running", timeout_s=5)


async def test_a_node_breaks_on_demand_and_is_repaired(rig):
    node = "/api/v1/nodes/cpu-0"

    def schedulable(nodes: list[dict[str, Any]]) -> bool:
        return all(is_schedulable(each) for each in nodes)

    async def has_label(value: str | None) -> None:
        await rig.api.patch(node, {"metadata": {"labels": {"rig.cohort-extender.io/not-ready": value}}})

    await has_label("true")
    await rig.wait_for("/api/v1/nodes", lambda nodes: not schedulable(nodes), timeout_s=10)
    await has_label(None)
    await rig.wait_for("/api/v1/nodes", schedulable, timeout_s=10)


async def test_a_paused_scheduler_holds_pods_back_until_it_is_resumed(rig):
    scheduler = rig.component("kube-scheduler")
    scheduler.pause()
    try:
        await rig.api.create(PODS, pod("held"))
        with pytest.raises(TimeoutError):
            await in_phase(rig, "held", "Running", timeout_s=1)
    finally:
        scheduler.resume()

    await in_phase(rig, "held", "Running")


async def test_a_second_scheduler_serves_its_own_pods(rig):
    config = {"profiles": [{"schedulerName": "second"}]}
    second = await rig.start_scheduler(config, name="second-scheduler")
    theirs = pod("theirs")
    theirs["spec"]["schedulerName"] = "second"

    await rig.api.create(PODS, theirs)

    await in_phase(rig, "theirs", "Running")
    await second.terminate()
    assert "scheduler_" in await rig.metrics("kube-scheduler")


async def test_a_program_of_ours_is_supervised(rig):
    port = rig.free_port()
    argv = [sys.executable, "-u", "-m", "http.server", str(port), "--bind", "127.0.0.1"]

    process = await rig.start_process("web", argv, ready_url=f"http://127.0.0.1:{port}/")

    assert "GET / HTTP/1.1" in process.text()
    before = process.pid
    await process.restart()
    assert process.pid != before
    assert await process.terminate() == -signal.SIGTERM


async def test_a_program_that_ends_at_once_is_reported_with_its_log(rig):
    argv = [sys.executable, "-c", "print('no such thing'); raise SystemExit(3)"]

    with pytest.raises(ProcessError, match=r"(?s)broken ended with 3.*no such thing"):
        await rig.start_process("broken", argv, ready_url="http://127.0.0.1:1/")


async def test_two_rigs_run_side_by_side_and_start_in_time(rig):
    started = time.monotonic()
    async with Rig(nodes=[NodePool("other", 1)]) as other:
        took_s = time.monotonic() - started
        names = {node["metadata"]["name"] for node in await other.api.list("/api/v1/nodes")}

    assert names == {"other-0"}
    assert other.server != rig.server
    assert took_s < START_S_MAX
    assert not any(process.running for process in other.processes.values())
    assert not other.directory.exists()


ORPHANS = """
import asyncio
from tests.rig import Rig

async def main():
    async with Rig() as rig:
        print(*(process.pid for process in rig.processes.values()), rig.directory, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_nothing_is_left_when_the_owner_is_killed():
    owner = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", ORPHANS], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    with owner, owner.stdout:
        line = await asyncio.wait_for(asyncio.to_thread(owner.stdout.readline), START_S_MAX * 2)
        *pids, directory = line.split()
        assert len(pids) == 5
        owner.kill()

    for _ in range(100):
        alive = [pid for pid in pids if _is_alive(int(pid))]
        if not alive:
            break
        await asyncio.sleep(0.05)

    assert alive == []
    os.utime(directory, (0, 0))
    async with Rig():  # the next one sweeps
        assert not os.path.exists(directory)  # noqa: ASYNC240


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"
