"""What asked for no queue keeps every byte, with all of our webhooks and policies on."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.jobs.lab import JOBS, LAB, QUEUE, Lab, a_while, job
from tests.rig import ApiError, Rig

pytestmark = [pytest.mark.rig, pytest.mark.timeout(180)]

APPS = f"/apis/apps/v1/namespaces/{LAB}"
OWNER = {"apiVersion": "example.com/v1", "kind": "Workflow", "name": "w", "uid": "u-1", "controller": True}


def workload(kind: str, name: str, **labels: str) -> dict[str, Any]:
    """A Deployment, StatefulSet or ReplicaSet without pods."""
    spec = {
        "replicas": 0,
        "selector": {"matchLabels": {"app": name}},
        "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "main", "image": "busybox:1.37"}]},
        },
    }
    if kind == "StatefulSet":
        spec["serviceName"] = name
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "labels": labels}, "spec": spec}


def owned(found: dict[str, Any]) -> dict[str, Any]:
    """The same, made by a controller."""
    made = copy.deepcopy(found)
    made["metadata"]["ownerReferences"] = [OWNER]
    return made


def bare(found: dict[str, Any]) -> dict[str, Any]:
    """An object without what each object has for itself."""
    made = copy.deepcopy(found)
    for field in ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "selfLink"):
        made["metadata"].pop(field, None)
    made.pop("status", None)
    if "annotations" in made["metadata"]:
        made["metadata"]["annotations"].pop("deployment.kubernetes.io/revision", None)  # its controller's
        if not made["metadata"]["annotations"]:
            del made["metadata"]["annotations"]
    text = found["metadata"].get("uid", "")
    return _without(made, text)


def _without(tree: Any, uid: str) -> Any:
    if isinstance(tree, dict):
        return {key: _without(value, uid) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_without(value, uid) for value in tree]
    return "uid" if tree == uid else tree


CASES = {
    "a Job without a queue": (JOBS, job("plain", queue="")),
    "a Job with a queue, owned by a controller": (JOBS, owned(job("owned"))),
    "a Job with a queue, of a foreign controller": (JOBS, job("foreign", managedBy="example.com/other")),
    "a Deployment without a queue": (f"{APPS}/deployments", workload("Deployment", "web")),
    "a StatefulSet without a queue": (f"{APPS}/statefulsets", workload("StatefulSet", "db")),
    "a ReplicaSet of a Deployment, without a queue": (f"{APPS}/replicasets", owned(workload("ReplicaSet", "rs"))),
}


async def test_objects_that_ask_for_nothing_are_stored_as_on_a_cluster_without_us(lab: Lab):
    stored = {}
    for name, (path, found) in CASES.items():
        stored[name] = await lab.api.create(path, found)
    await a_while()
    later = {name: await lab.api.get(f"{CASES[name][0]}/{one['metadata']['name']}") for name, one in stored.items()}
    async with Rig(nodes=(), scheduler=False) as other:
        await other.api.create("/api/v1/namespaces", {"metadata": {"name": LAB}})
        want = {name: bare(await other.api.create(path, found)) for name, (path, found) in CASES.items()}

    try:
        for name, one in stored.items():
            assert bare(one) == want[name], name
            assert bare(later[name]) == want[name], name
    finally:
        for name in CASES:
            path, found = CASES[name]
            await lab.api.delete(f"{path}/{found['metadata']['name']}", propagationPolicy="Background", missing_ok=True)


async def test_a_queued_job_in_an_excluded_namespace_is_left_alone(lab: Lab):
    found = job("system")
    found["metadata"]["namespace"] = "kube-system"
    path = "/apis/batch/v1/namespaces/kube-system/jobs"
    made = await lab.api.create(path, found)
    await a_while()
    later = await lab.api.get(f"{path}/system")
    await lab.api.delete(f"{path}/system", propagationPolicy="Background")

    assert "suspend" not in made["spec"] or made["spec"]["suspend"] is False
    assert "cohort-extender.io/managed" not in later["metadata"]["labels"]
    assert later["spec"].get("suspend", False) is False


async def test_a_job_keeps_its_queue_while_it_runs(lab: Lab):
    await lab.submit(job("train"))
    await lab.admitted("train")
    with pytest.raises(ApiError) as refused:
        await lab.api.patch(f"{JOBS}/train", {"metadata": {"labels": {QUEUE: "other"}}})

    assert refused.value.status == 422
