"""Jobs as the API server sends them become records, and effects about them requests."""

from typing import Any

import orjson
import pytest

from extender.jobs.kinds import TRAIN_JOB, TRAIN_JOB_MANAGER, KindRow, PodSetRow, kind_of, kinds_of
from extender.kube.decode_jobs import codec
from extender.kube.writes_jobs import job_patch
from extender.model.errors import UserError
from extender.model.jobs import Job, JobSeen
from tests.jobs.build import GPU, JOB, JOB_SET, PYTORCH_JOB, Play, job, job_json

TRAIN = kind_of(TRAIN_JOB)
QUEUED = {"kueue.x-k8s.io/queue-name": "lab"}


def item(kind, found):
    return codec(kind).item(orjson.dumps(found))


def test_a_job_is_one_pod_set_of_as_many_pods_as_may_run_at_once():
    (pods,) = job(spec__parallelism=4, spec__completions=3).pods

    assert (pods.name, pods.path, pods.count, pods.requests) == ("main", ("spec", "template"), 3, ((GPU, 1),))


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"metadata__labels": {}}, id="no queue and no mark"),
        pytest.param(
            {
                "metadata__ownerReferences": [{"kind": "Workflow", "name": "w", "uid": "w", "controller": True}],
                "spec__template__metadata": {},
            },
            id="made by a controller",
        ),
        pytest.param({"spec__managedBy": "example.com/other"}, id="of another controller"),
    ],
)
def test_a_job_that_is_none_of_ours_is_no_fact(changes):
    assert item(JOB, job_json(**changes)).fact is None


def test_a_child_of_a_queued_object_is_known_for_its_owner_only():
    owner = {"kind": "JobSet", "name": "s", "uid": "set", "controller": True}
    fact = item(JOB, job_json(metadata__ownerReferences=[owner])).fact

    assert isinstance(fact, JobSeen)
    assert (fact.job.owner.uid, fact.job.queue, fact.job.managed) == ("set", "", False)


@pytest.mark.parametrize(
    ("status", "want"),
    [
        pytest.param({"completedIndexes": "0,2-3"}, 3, id="ranges and single ones"),
        pytest.param({"completedIndexes": "0-2", "failedIndexes": "2,3"}, 4, id="the union"),
        pytest.param({"completedIndexes": "2-9"}, 2, id="below completions only"),
        pytest.param({"completedIndexes": "x,,3"}, 1, id="junk counts nothing"),
    ],
)
def test_done_indexes_are_counted_once(status, want):
    found = job(spec__completionMode="Indexed", status__completedIndexes="", status__failedIndexes="")
    assert found.done == 0

    changes = {f"status__{key}": value for key, value in status.items()}
    assert job(spec__completionMode="Indexed", **changes).done == want


def test_a_map_of_templates_gives_a_pod_set_each():
    template = {"spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}}
    specs = {"Master": {"template": template}, "Worker": {"replicas": 3, "template": template}}
    found = {"metadata": {"name": "t", "uid": "u", "labels": QUEUED}, "spec": {"pytorchReplicaSpecs": specs}}
    fact = item(PYTORCH_JOB, found).fact

    assert [(pods.name, pods.count) for pods in fact.job.pods] == [("master", 1), ("worker", 3)]
    assert fact.job.pods[1].path == ("spec", "pytorchReplicaSpecs", "Worker", "template")
    assert not fact.job.suspend_parent


def train_job(**trainer: Any) -> Job:
    patch = {"metadata": {"labels": {}}, "spec": {"nodeSelector": {"zone": "a"}}}
    jobs = [{"name": "other"}, {"name": "node", "template": {"spec": {"template": patch}}}]
    patches = [{"manager": "x"}, {"manager": TRAIN_JOB_MANAGER, "trainingRuntimeSpec": {"template": {"spec": {}}}}]
    patches[1]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"] = jobs
    spec = {"suspend": True, "trainer": trainer, "runtimePatches": patches}
    return item(TRAIN, {"metadata": {"name": "t", "uid": "u", "labels": QUEUED}, "spec": spec}).fact.job


def test_a_patch_of_a_template_is_a_pod_set_with_resources_from_elsewhere():
    (pods,) = train_job(numNodes=4, resourcesPerNode={"requests": {"cpu": "2"}}).pods

    assert (pods.count, pods.requests, pods.node_selector) == (4, (("cpu", 2000),), (("zone", "a"),))
    assert pods.path[:3] == ("spec", "runtimePatches", "1")
    assert pods.path[5:9] == ("spec", "replicatedJobs", "1", "template")


def test_what_is_only_in_a_runtime_is_not_guessed():
    problem = train_job(resourcesPerNode={"requests": {"cpu": "2"}}).problem

    assert problem.startswith("spec.trainer.numNodes: is missing")


def test_what_stands_between_a_kind_and_its_pods_is_watched_with_it():
    assert [kind.kind for kind in kinds_of(("TrainJob", "RayJob"), ())] == [
        *("Job", "TrainJob", "RayJob", "JobSet", "RayCluster")
    ]


@pytest.mark.parametrize("spec", [{}, {"replicatedJobs": None}, {"replicatedJobs": [1]}, {"replicatedJobs": "x"}])
def test_an_object_without_templates_has_a_problem_and_is_kept(spec):
    found = item(JOB_SET, {"metadata": {"name": "t", "uid": "u", "labels": QUEUED}, "spec": spec})

    assert found.fact.job.problem == "has no pod template where its kind should have one"


def test_the_patch_of_an_admission_is_guarded_and_whole():
    play = Play()
    play.sees(job())
    operations = orjson.loads(job_patch(play.starts()))
    by_path = {operation["path"]: operation["value"] for operation in operations}

    assert operations[0] == {"op": "test", "path": "/metadata/uid", "value": "u1"}
    assert by_path["/metadata/resourceVersion"] == "8"
    assert by_path["/spec/suspend"] is False
    assert by_path["/spec/template/spec/nodeSelector"] == {"color": "blue"}


@pytest.mark.parametrize(
    ("row", "want"),
    [
        pytest.param({"suspend": "spec..x"}, "suspend: 'spec..x' is not a path", id="a path with a hole"),
        pytest.param({"group": "Bad Group"}, "group: 'Bad Group' is not an API group", id="a group"),
        pytest.param({"pod_sets": ()}, "podSets: is empty", id="no pod sets"),
    ],
)
def test_a_wrong_row_names_its_field(row, want):
    fields = {"group": "a.b", "version": "v1", "kind": "K", "plural": "ks", "pod_sets": (PodSetRow(template="spec.t"),)}
    with pytest.raises(UserError) as refused:
        kind_of(KindRow(**{**fields, **row}))

    assert want in str(refused.value)


def test_an_unknown_integration_and_a_kind_named_twice_are_refused():
    with pytest.raises(UserError, match="'Unknown' is unknown"):
        kinds_of(("Unknown",), ())
    with pytest.raises(UserError, match="is there twice"):
        kinds_of((), (KindRow("batch", "v1", "Job", "jobs", (PodSetRow(template="spec.t"),)),))
