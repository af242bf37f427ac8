"""A queue on a Deployment, StatefulSet or ReplicaSet reaches its pods."""

from __future__ import annotations

from typing import Any

import pytest

from tests.jobs.lab import ADMISSION, GPU, LAB, PODS, QUEUE, Lab, a_while, annotation, as_json, is_running, reason_of

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
        spec |= {"serviceName": "web"}
    metadata = {"name": "web", "labels": {QUEUE: queue, "kueue.x-k8s.io/priority-class": "urgent"}}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec}


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet"])
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


async def test_a_stateful_set_runs_whole_or_not_at_all_and_grows_without_stopping(lab: Lab):
    path = f"{APPS}/statefulsets"
    await lab.priority("urgent", 100)
    await lab.quota(blue=2)
    await lab.api.create(path, parent("StatefulSet", replicas=3))
    (waiting,) = await lab.until_pods(lambda pods: [pod for pod in pods if reason_of(pod)[0]], "the first waits")
    await a_while(1.0)
    await lab.until_used(blue=0)  # one pod alone is charged nothing
    await lab.quota(blue=4)
    first = await lab.until_pods(_all_running(3), "all three run")
    await lab.until_used(blue=3)
    await scale(lab, 5)
    await lab.until_pods(lambda pods: sum(map(is_running, pods)) == 4, "it grows by one")
    (late,) = await lab.until_pods(lambda pods: [pod for pod in pods if reason_of(pod)[0] == "QuotaUsed"], "one waits")
    await scale(lab, 1)
    await lab.until_used(blue=1)
    (kept,) = await lab.until_pods(_all_running(1), "one is left")
    await lab.api.delete(f"{path}/web", propagationPolicy="Background")
    await lab.until_pods(lambda pods: not pods, "no pods")

    assert reason_of(waiting) == (
        "ExceedsMaxQuota",
        "needs 3 example.com/gpu of blue, ClusterQueue lab-cq can never have over 2",
    )
    assert [pod["metadata"]["name"] for pod in first] == ["web-0", "web-1", "web-2"]
    assert late["metadata"]["name"] == "web-4"
    assert kept["metadata"]["uid"] == first[0]["metadata"]["uid"]
    assert as_json(annotation(kept, ADMISSION))["podSets"][0]["count"] == 1


async def scale(lab: Lab, replicas: int) -> None:
    """As kubectl and autoscalers do it: by the subresource, which leaves the template alone."""
    await lab.api.patch(f"{APPS}/statefulsets/web/scale", {"spec": {"replicas": replicas}})


def _all_running(count: int):
    def wanted(pods: list[dict[str, Any]]) -> list[dict[str, Any]] | bool:
        return (
            len(pods) == count and all(map(is_running, pods)) and sorted(pods, key=lambda one: one["metadata"]["name"])
        )

    return wanted
