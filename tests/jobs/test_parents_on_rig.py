"""A queue on a Deployment, StatefulSet or ReplicaSet reaches its pods."""

from __future__ import annotations

from typing import Any

import pytest

from tests.jobs.lab import ADMISSION, GPU, LAB, PODS, QUEUE, Lab, a_while, annotation, is_running

pytestmark = [pytest.mark.rig, pytest.mark.timeout(180)]

APPS = f"/apis/apps/v1/namespaces/{LAB}"
PLURALS = {"Deployment": "deployments", "StatefulSet": "statefulsets", "ReplicaSet": "replicasets"}


def parent(kind: str, *, replicas: int, queue: str = "lab") -> dict[str, Any]:
    """An object with *replicas* pods of one GPU."""
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "main", "image": "b", "resources": {"limits": {GPU: "1"}}}]},
        },
    }
    if kind == "StatefulSet":
        spec |= {"serviceName": "web", "podManagementPolicy": "Parallel"}
    metadata = {"name": "web", "labels": {QUEUE: queue, "kueue.x-k8s.io/priority-class": "urgent"}}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec}


@pytest.mark.parametrize("kind", list(PLURALS))
async def test_its_pods_are_queued_each_for_itself(lab: Lab, kind: str):
    await lab.priority("urgent", 100)
    await lab.quota(blue=3)
    path = f"{APPS}/{PLURALS[kind]}"
    made = await lab.api.create(path, parent(kind, replicas=5))
    await lab.until_pods(lambda pods: sum(map(is_running, pods)) == 3, "three of five run")
    await a_while()
    pods = await lab.api.list(PODS)
    admitted = [pod for pod in pods if annotation(pod, ADMISSION)]
    await lab.api.patch(f"{path}/web", {"spec": {"replicas": 1}})
    await lab.until_used(blue=1)
    await lab.api.delete(f"{path}/web", propagationPolicy="Background")
    await lab.until_pods(lambda pods: not pods, "no pods")

    assert made["spec"]["template"]["metadata"]["annotations"] == {QUEUE: "lab"}
    assert made["spec"]["template"]["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "urgent"
    assert len(admitted) == 3
    assert len(pods) == 5


async def test_a_queue_that_is_named_later_reaches_the_pods_of_the_next_rollout(lab: Lab):
    made = parent("Deployment", replicas=1)
    del made["metadata"]["labels"]
    await lab.api.create(f"{APPS}/deployments", made)
    await lab.until_pods(lambda pods: sum(map(is_running, pods)) == 1, "it runs, in no queue")
    await lab.api.patch(f"{APPS}/deployments/web", {"metadata": {"labels": {QUEUE: "lab"}}})
    await lab.until_used(blue=1)
    await lab.api.delete(f"{APPS}/deployments/web", propagationPolicy="Background")
    await lab.until_pods(lambda pods: not pods, "no pods")
