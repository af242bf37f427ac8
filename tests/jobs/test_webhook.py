"""The webhooks that hold Jobs and carry queues into templates: which objects they change, and how."""

import base64
from typing import Any

import orjson
import pytest

from extender.jobs.kinds import kinds_of
from extender.model.jobs import UNIT_ADMISSION_ANNOTATION, UNIT_ANNOTATION
from extender.model.pods import ADMISSION_ANNOTATION, GATE, MANAGED_LABEL, MARKER_RESOURCE, QUEUE_NAME
from extender.serve import parents
from extender.serve.jobs import JobWebhook
from extender.serve.webhook import Webhook
from tests.jobs.build import KINDS
from tests.serve.doubles import ENVELOPE, FakeQueues, patched, response
from tests.serve.doubles import review as pod_review
from tests.serve.guard_cases import WRITER
from tests.serve.guard_cases import pod as plain_pod

OWNER = {"kind": "JobSet", "name": "s", "uid": "u", "controller": True}
CRON = {**OWNER, "kind": "CronJob"}


@pytest.fixture
def webhook() -> JobWebhook:
    return JobWebhook(FakeQueues("with-default"), KINDS)


def review(
    found: dict[str, Any], *, kind: str = "Job", group: str = "batch", namespace: str = "icu", **more: Any
) -> bytes:
    request = {"uid": "r", "kind": {"group": group, "kind": kind}, "operation": "CREATE", "namespace": namespace}
    return orjson.dumps({**ENVELOPE, "request": {**request, "object": found, **more}})


def job(*, queue: str = "training", template: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    labels = {QUEUE_NAME: queue} if queue else {}
    pod = {"spec": {"containers": [{"name": "main"}]}, **(template or {})}
    return {"metadata": {"name": "train", "labels": labels, **metadata}, "spec": {"template": pod}}


def is_held(found: dict[str, Any]) -> bool:
    template = found["spec"]["template"]
    resources = template["spec"]["containers"][0]["resources"]
    return (
        found["spec"]["suspend"] is True
        and found["metadata"]["labels"][MANAGED_LABEL] == "true"
        and template["metadata"]["labels"][MANAGED_LABEL] == "true"
        and template["metadata"]["annotations"][UNIT_ANNOTATION] == "job"
        and resources["limits"][MARKER_RESOURCE] == resources["requests"][MARKER_RESOURCE] == "1"
    )


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(job(), id="a queue in a label"),
        pytest.param(job(queue="", annotations={QUEUE_NAME: "a"}), id="a queue in an annotation"),
        pytest.param(job(ownerReferences=[CRON]), id="made by a CronJob"),
        pytest.param(
            job(template={"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}}),
            id="a template with marks of others",
        ),
        pytest.param(
            {**job(), "spec": {**job()["spec"], "managedBy": "kubernetes.io/job-controller"}},
            id="the built-in controller by name",
        ),
        pytest.param({**job(), "spec": {**job()["spec"], "suspend": False}}, id="not suspended, in so many words"),
    ],
)
def test_a_job_with_a_queue_is_held(webhook: JobWebhook, found: dict[str, Any]):
    assert is_held(patched(found, webhook.mutate(review(found)).body))


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(job(queue=""), id="no queue"),
        pytest.param(job(ownerReferences=[OWNER]), id="made by a controller"),
        pytest.param(
            {**job(), "spec": {**job()["spec"], "managedBy": "example.com/other"}}, id="of another controller"
        ),
        pytest.param(
            job(queue="", template={"metadata": {"labels": {QUEUE_NAME: "a"}}}), id="a queue on the template only"
        ),
    ],
)
def test_any_other_job_keeps_every_byte(webhook: JobWebhook, found: dict[str, Any]):
    assert "patch" not in response(webhook.mutate(review(found)).body)


def test_a_default_queue_serves_a_job_without_one_but_not_one_whose_template_names_one(webhook: JobWebhook):
    plain = job(queue="")
    below = job(queue="", template={"metadata": {"annotations": {QUEUE_NAME: "a"}}})

    held = patched(plain, webhook.mutate(review(plain, namespace="with-default")).body)
    assert is_held(held)
    assert held["metadata"]["annotations"][QUEUE_NAME] == "default"
    assert "patch" not in response(webhook.mutate(review(below, namespace="with-default")).body)


def test_an_admission_that_comes_with_a_new_job_is_taken_away(webhook: JobWebhook):
    found = job(
        annotations={ADMISSION_ANNOTATION: "{}"},
        template={"metadata": {"annotations": {UNIT_ADMISSION_ANNOTATION: "{}"}}, "spec": {"containers": [{}]}},
    )

    operations = orjson.loads(base64.b64decode(response(webhook.mutate(review(found)).body)["patch"]))
    removed = {operation["path"].rpartition("/")[2] for operation in operations if operation["op"] == "remove"}
    assert removed == {ADMISSION_ANNOTATION.replace("/", "~1"), UNIT_ADMISSION_ANNOTATION.replace("/", "~1")}


def test_to_be_asked_twice_changes_nothing(webhook: JobWebhook):
    held = patched(job(), webhook.mutate(review(job())).body)

    assert "patch" not in response(webhook.mutate(review(held)).body)


def test_a_template_that_names_a_queue_too_is_warned_about(webhook: JobWebhook):
    found = job(template={"metadata": {"annotations": {QUEUE_NAME: "b"}}, "spec": {"containers": [{}]}})

    (warning,) = response(webhook.mutate(review(found)).body)["warnings"]
    assert "the Job is queued whole" in warning


def test_another_kind_is_held_by_its_row(webhook: JobWebhook):
    replica = {"replicas": 1, "template": {"spec": {"containers": [{"resources": {"limits": {"cpu": "1"}}}]}}}
    found = {"metadata": {"labels": {QUEUE_NAME: "a"}}, "spec": {"pytorchReplicaSpecs": {"Master": replica}}}

    held = patched(found, webhook.mutate(review(found, kind="PyTorchJob", group="kubeflow.org")).body)
    template = held["spec"]["pytorchReplicaSpecs"]["Master"]["template"]
    assert held["spec"]["runPolicy"] == {"suspend": True}
    assert template["metadata"]["annotations"] == {UNIT_ANNOTATION: "job"}
    assert template["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "1", MARKER_RESOURCE: "1"}


@pytest.mark.parametrize("patches", [None, [], [{"manager": "someone"}]])
def test_a_kind_whose_template_is_elsewhere_gets_a_patch_of_it(patches: list[dict[str, Any]] | None):
    webhook = JobWebhook(FakeQueues(), kinds_of(("TrainJob",), ()))
    spec = {"trainer": {"numNodes": 2}} | ({} if patches is None else {"runtimePatches": patches})
    found = {"metadata": {"labels": {QUEUE_NAME: "a"}}, "spec": spec}
    held = patched(found, webhook.mutate(review(found, kind="TrainJob", group="trainer.kubeflow.org")).body)
    again = response(webhook.mutate(review(held, kind="TrainJob", group="trainer.kubeflow.org")).body)

    *others, ours = held["spec"]["runtimePatches"]
    (node,) = ours["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert others == (patches or [])
    assert node["template"]["spec"]["template"]["metadata"]["annotations"] == {UNIT_ANNOTATION: "job"}
    assert held["spec"]["suspend"] is True
    assert "patch" not in again


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b'{"request": {"uid": "1"}}', b"\xff"])
def test_junk_is_refused(webhook: JobWebhook, body: bytes):
    assert webhook.mutate(body).status == 400
    assert parents.mutate(body).status == 400


@pytest.mark.parametrize(
    ("admission", "gated"),
    [
        pytest.param({}, True, id="before its Job's admission it is gated"),
        pytest.param({UNIT_ADMISSION_ANNOTATION: "{}"}, False, id="with it, it is not"),
    ],
)
def test_a_pod_of_a_job_waits_with_its_job(admission: dict[str, str], gated: bool):
    found = plain_pod(queue="a")
    found["metadata"]["annotations"] |= {UNIT_ANNOTATION: "job", **admission}

    marked = patched(found, Webhook(FakeQueues(), writer=WRITER).mutate(pod_review(found)).body)
    gates = [gate["name"] for gate in marked["spec"].get("schedulingGates", [])]
    assert (GATE in gates) is gated
    assert marked["metadata"]["labels"][MANAGED_LABEL] == "true"


def parent(**metadata: Any) -> dict[str, Any]:
    return {"metadata": metadata, "spec": {"template": {"metadata": {"labels": {"app": "web"}}}}}


def test_a_queue_on_a_deployment_reaches_its_template():
    found = parent(labels={QUEUE_NAME: "a", "kueue.x-k8s.io/priority-class": "high"})

    carried = patched(found, parents.mutate(review(found, kind="Deployment", group="apps")).body)
    template = carried["spec"]["template"]["metadata"]
    assert template["annotations"] == {QUEUE_NAME: "a"}
    assert template["labels"] == {"app": "web", "kueue.x-k8s.io/priority-class": "high"}


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        pytest.param(parent(), "Deployment", id="no queue"),
        pytest.param(
            parent(labels={QUEUE_NAME: "a"}, ownerReferences=[OWNER]), "ReplicaSet", id="made by a controller"
        ),
        pytest.param(parent(labels={QUEUE_NAME: "a"}), "DaemonSet", id="another kind"),
    ],
)
def test_any_other_object_keeps_every_byte(found: dict[str, Any], kind: str):
    assert "patch" not in response(parents.mutate(review(found, kind=kind, group="apps")).body)


@pytest.mark.parametrize(
    ("template", "operation", "want"),
    [
        pytest.param({}, "CREATE", {QUEUE_NAME: "a", UNIT_ANNOTATION: "statefulset"}, id="it is marked when created"),
        pytest.param({}, "UPDATE", {QUEUE_NAME: "a", UNIT_ANNOTATION: "statefulset"}, id="and when a queue is named"),
        pytest.param({QUEUE_NAME: "a"}, "UPDATE", {QUEUE_NAME: "a"}, id="but its pods are not replaced for it"),
        pytest.param(
            {"kueue.x-k8s.io/pod-group-name": "g"},
            "CREATE",
            {QUEUE_NAME: "a", "kueue.x-k8s.io/pod-group-name": "g"},
            id="nor taken out of a group of their own",
        ),
    ],
)
def test_a_stateful_set_is_queued_as_a_whole(template: dict[str, str], operation: str, want: dict[str, str]):
    found = parent(labels={QUEUE_NAME: "a"})
    found["spec"]["template"]["metadata"]["annotations"] = template
    asked = review(found, kind="StatefulSet", group="apps", operation=operation)

    assert patched(found, parents.mutate(asked).body)["spec"]["template"]["metadata"]["annotations"] == want


def test_patches_are_json_patches():
    answer = response(parents.mutate(review(parent(labels={QUEUE_NAME: "a"}), kind="Deployment", group="apps")).body)

    assert answer["patchType"] == "JSONPatch"
    assert isinstance(orjson.loads(base64.b64decode(answer["patch"])), list)
