"""Conditions, events and statuses: what is said, to whom, and how often."""

import orjson
import pytest

from extender.kube.outbox import Pace
from extender.kube.writer import OutcomeKind
from extender.model.effects import (
    RecordEvent,
    SetQueueStatus,
)
from tests.kube.desk import PODS, condition, desk_of, stored
from tests.support.objects import pod_json


async def test_a_condition_is_ours_alone(api, desk, pod):
    await desk.does(condition(pod, "waits for 2"))
    first = stored(api)["status"]["conditions"][-1]
    await desk.does(condition(pod, "waits for 1"))
    second = stored(api)["status"]["conditions"]

    assert first == {
        "type": "cohort-extender.io/Admitted",
        "status": "False",
        "reason": "QuotaUsed",
        "message": "waits for 2",
        "lastTransitionTime": "2026-03-01T08:30:15Z",
    }
    assert [one["type"] for one in second] == ["PodScheduled", "cohort-extender.io/Admitted"]
    assert second[-1]["message"] == "waits for 1"
    assert "lastTransitionTime" not in orjson.loads(api.bodies[1])["status"]["conditions"][0]
    assert api.requests[0].path == "/api/v1/namespaces/research/pods/p/status"


async def test_the_time_of_transition_is_written_when_the_status_changes(api, desk, pod):
    await desk.does(condition(pod))
    await desk.does(condition(pod, "admitted", status=True))

    assert "lastTransitionTime" in orjson.loads(api.bodies[1])["status"]["conditions"][0]


async def test_nothing_is_remembered_of_pods_that_went(api, client):
    pods = [api.put(PODS, pod_json(f"p{number}")) for number in range(20)]
    async with desk_of(client, pace=Pace(conditions_per_s=1000, conditions_burst=1000)) as desk:
        for pod in pods:
            await desk.does(condition(pod))
            desk.ended.add(pod["metadata"]["uid"])

        assert len(desk.writer._statuses) <= 2


async def test_a_condition_of_another_pod_is_refused(api, desk, pod):
    other = {"metadata": {**pod["metadata"], "uid": "x"}}

    assert await desk.kind(condition(other)) is OutcomeKind.GONE


async def test_only_the_newest_condition_is_written(api, client, pod):
    async with desk_of(client, pace=Pace(conditions_per_s=1, conditions_burst=1)) as desk:
        outcomes = await desk.does(*[condition(pod, f"waits for {i}") for i in range(5)])

    assert [outcome.kind for outcome in outcomes] == [*[OutcomeKind.DROPPED] * 4, OutcomeKind.DONE]
    assert stored(api)["status"]["conditions"][-1]["message"] == "waits for 4"
    assert len(api.requests) == 1


async def test_an_event_names_its_pod(api, desk, pod):
    kind = await desk.kind(RecordEvent("uid-p", "research", "p", "Preempted", "by q" * 1000, warning=True))
    ((key, event),) = api.objects["/api/v1/events"].items()

    assert kind is OutcomeKind.DONE
    assert key.startswith("research/p.")
    assert event["involvedObject"]["uid"] == "uid-p"
    assert (event["type"], event["reason"], event["count"]) == ("Warning", "Preempted", 1)
    assert len(event["message"]) == 1024


@pytest.mark.parametrize(
    ("effect", "path", "key"),
    [
        pytest.param(
            SetQueueStatus("ClusterQueue", "", "training", b'{"pendingWorkloads":3}'),
            "/apis/kueue.x-k8s.io/v1beta2/clusterqueues",
            "training",
            id="of a cluster queue",
        ),
        pytest.param(
            SetQueueStatus("LocalQueue", "research", "team", b'{"pendingWorkloads":3}'),
            "/apis/kueue.x-k8s.io/v1beta2/localqueues",
            "research/team",
            id="of a local queue",
        ),
    ],
)
async def test_a_status_is_applied(api, desk, effect, path, key):
    meta = {"name": effect.name, **({"namespace": effect.namespace} if effect.namespace else {})}
    api.put(path, {"metadata": meta, "spec": {"kept": True}})

    assert await desk.kind(effect) is OutcomeKind.DONE
    assert api.get(path, key)["status"] == {"pendingWorkloads": 3}
    assert api.get(path, key)["spec"] == {"kept": True}
    assert api.requests[0].content_type == "application/apply-patch+yaml"
    assert dict(api.requests[0].query) == {"fieldManager": "cohort-extender", "force": "true"}
    assert orjson.loads(api.bodies[0])["apiVersion"] == "kueue.x-k8s.io/v1beta2"
