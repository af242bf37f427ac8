"""What is told of one pod: its queue, what it was given, what it waits for; of a Job's pod, its Job."""

import orjson
import pytest

from extender.cli.pods import Found, describe, find
from extender.kube.client import ApiClient
from extender.kube.config import ClusterConfig
from extender.model.names import ClusterQueueName, FlavorName, PodUid, ResourceName
from extender.model.workload import Admission, PodSetAssignment
from extender.pods.admission import write_admission
from tests.support.fake_api import FakeApi, Fault

GPU = ResourceName("nvidia.com/gpu")
CPU = ResourceName("cpu")
QUEUE = {"kueue.x-k8s.io/queue-name": "training"}
UNIT = {"cohort-extender.io/unit": "job"}


def given(count: int) -> str:
    """The annotation of a pod that has two GPUs and one and a half cores, admitted with *count* alike."""
    flavors = ((CPU, FlavorName("any-node")), (GPU, FlavorName("a100")))
    usage = ((CPU, 1500 * count), (GPU, 2 * count))
    assignment = PodSetAssignment(name="main", flavors=flavors, usage=usage, count=count)
    return write_admission(PodUid("u"), "main", Admission(ClusterQueueName("research"), (assignment,), 0))


WHY = {"type": "cohort-extender.io/Admitted", "status": "False", "reason": "QuotaUsed", "message": "needs 3 more"}


@pytest.mark.parametrize(
    ("annotations", "gates", "conditions", "want"),
    [
        pytest.param({}, [], [], "queue none\ndoes not wait for quota", id="a stranger"),
        pytest.param(
            QUEUE,
            ["cohort-extender.io/admission"],
            [],
            "queue training\nwaits for admission; if it waits for more than two seconds, the reason is written",
            id="just created",
        ),
        pytest.param(
            QUEUE, ["x/y"], [], "queue training\ndoes not wait for quota\nother gates: x/y", id="held by others"
        ),
        pytest.param(QUEUE, [], [WHY], "queue training\nQuotaUsed: needs 3 more", id="waiting"),
        pytest.param(
            {**QUEUE, "cohort-extender.io/admission": given(1)},
            [],
            [],
            "queue training\nadmitted by ClusterQueue research: "
            "1500m cpu of flavor any-node, 2 nvidia.com/gpu of flavor a100",
            id="admitted",
        ),
        pytest.param(
            {**QUEUE, "cohort-extender.io/admission": given(4)},
            [],
            [],
            "queue training\nadmitted by ClusterQueue research: "
            "1500m cpu of flavor any-node, 2 nvidia.com/gpu of flavor a100 (one of 4 pods that were admitted together)",
            id="admitted with its group",
        ),
        pytest.param(
            {**QUEUE, "cohort-extender.io/admission": "{"},
            [],
            [],
            "queue training\nadmitted by ClusterQueue None",
            id="an annotation that nobody can read",
        ),
    ],
)
def test_a_pod_in_one_paragraph(annotations, gates, conditions, want):
    found = {
        "metadata": {"namespace": "n", "name": "p", "annotations": annotations},
        "spec": {"schedulingGates": [{"name": gate} for gate in gates]},
        "status": {"conditions": conditions},
    }

    assert describe(Found(found)).plain == f"n/p  {want}"


def owner(kind: str, name: str, version: str = "batch/v1") -> dict:
    return {"ownerReferences": [{"apiVersion": version, "kind": kind, "name": name, "uid": "o", "controller": True}]}


@pytest.fixture
async def api():
    async with FakeApi.running() as running:
        running.put(
            "/api/v1/pods",
            {"metadata": {"namespace": "n", "name": "p", "annotations": UNIT, **owner("Job", "train")}, "spec": {}},
        )
        yield running


async def told(api: FakeApi) -> str:
    client = ApiClient(ClusterConfig(server=api.url))
    try:
        return describe(await find(client, "p", "n")).plain
    finally:
        await client.close()


JOB = {"namespace": "n", "name": "train", "labels": QUEUE}
SETS = [{"name": "main", "count": 2, "flavors": {"nvidia.com/gpu": "a100"}, "usage": {"nvidia.com/gpu": 4}}]
ADMITTED = orjson.dumps({"clusterQueue": "research", "podSets": SETS}).decode()


@pytest.mark.parametrize(
    ("more", "conditions", "want"),
    [
        pytest.param({}, [WHY], "QuotaUsed: needs 3 more", id="it waits"),
        pytest.param(
            {"annotations": {"cohort-extender.io/admission": ADMITTED}},
            [],
            "admitted by ClusterQueue research: 2 pods, 4 nvidia.com/gpu of flavor a100",
            id="it is admitted",
        ),
    ],
)
async def test_a_jobs_pod_tells_of_its_job(api, more, conditions, want):
    job = {"metadata": {**JOB, **more}, "spec": {}, "status": {"conditions": conditions}}
    api.put("/apis/batch/v1/jobs", job)

    assert await told(api) == (
        f"n/p  part of Job train, queue training\nthe Job as a whole: {want}\n"
        "more: kubectl cohort explain job train -n n"
    )


async def test_the_object_above_a_job_is_told_if_that_is_what_is_queued(api):
    above = owner("JobSet", "set", "jobset.x-k8s.io/v1alpha2")
    api.put("/apis/batch/v1/jobs", {"metadata": {"namespace": "n", "name": "train", **above}, "spec": {}})
    status = {"conditions": [WHY]}
    api.put(
        "/apis/jobset.x-k8s.io/v1alpha2/jobsets", {"metadata": {**JOB, "name": "set"}, "spec": {}, "status": status}
    )

    assert await told(api) == "n/p  part of JobSet set, queue training\nthe JobSet as a whole: QuotaUsed: needs 3 more"


@pytest.mark.parametrize("status", [403, 404])
async def test_a_job_that_cannot_be_read_is_named(api, status):
    api.fail("GET", "/jobs/train", Fault(status=status))

    assert await told(api) == (
        "n/p  part of Job train\nwaits and runs with it; it cannot be read here, look at its own conditions"
    )


@pytest.mark.parametrize(
    ("status", "want"),
    [
        pytest.param(0, "\nLocalQueues of this namespace: models, training", id="those it may read"),
        pytest.param(403, "", id="it may not read them"),
    ],
)
async def test_whose_queue_does_not_exist_is_shown_those_that_do(api, status, want):
    missing = {**WHY, "reason": "QueueNotFound", "message": "no LocalQueue trainin in namespace n"}
    annotations = {"kueue.x-k8s.io/queue-name": "trainin"}
    lost = {"metadata": {"namespace": "n", "name": "p", "annotations": annotations}, "spec": {}}
    api.put("/api/v1/pods", {**lost, "status": {"conditions": [missing]}})
    for namespace, name in (("n", "training"), ("n", "models"), ("other", "else")):
        api.put("/apis/kueue.x-k8s.io/v1beta2/localqueues", {"metadata": {"namespace": namespace, "name": name}})
    if status:
        api.fail("LIST", "/localqueues", Fault(status=status))

    said = "QueueNotFound: no LocalQueue trainin in namespace n"
    assert await told(api) == f"n/p  queue trainin\n{said}{want}"
