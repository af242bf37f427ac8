"""The mutating webhook: which pods are marked, and by which patch."""

import orjson
import pytest

from extender.model.pods import GATE, MANAGED_LABEL, MARKER_RESOURCE, QUEUE_NAME
from extender.serve.webhook import Webhook
from tests.serve.doubles import FakeQueues, golden, patched, response, review
from tests.serve.guard_cases import FOREIGN_GATE, WRITER, pod


@pytest.fixture
def webhook():
    return Webhook(FakeQueues("with-default"), writer=WRITER)


def gates(found):
    return [gate["name"] for gate in found["spec"].get("schedulingGates", [])]


def marks(found):
    resources = found["spec"]["containers"][0]["resources"]
    return (
        found["metadata"]["labels"].get(MANAGED_LABEL),
        GATE in gates(found),
        resources["requests"].get(MARKER_RESOURCE),
        resources["limits"].get(MARKER_RESOURCE),
    )


def test_the_reply_is_exactly_an_admission_review_of_version_1(webhook):
    reply = webhook.mutate(golden("review-create.request.json"))

    assert (reply.status, reply.body) == (200, golden("review-create.reply.json"))


@pytest.mark.parametrize(
    "new",
    [
        pytest.param(pod(queue="a"), id="queue in an annotation"),
        pytest.param(pod(queue_label="a"), id="queue in a label"),
        pytest.param(pod(queue="a", admission="{}"), id="a forged admission opens no gate"),
    ],
)
def test_a_pod_that_names_a_queue_is_marked(webhook, new):
    marked = patched(new, webhook.mutate(review(new)).body)

    assert marks(marked) == ("true", True, "1", "1")


@pytest.mark.parametrize(
    "resources",
    [
        pytest.param(None, id="no resources"),
        pytest.param({}, id="empty resources"),
        pytest.param({"limits": {"cpu": "1"}}, id="limits only"),
        pytest.param({"requests": {"cpu": 1}, "limits": {}}, id="requests, and empty limits"),
        pytest.param({"requests": None, "limits": None}, id="null maps"),
    ],
)
def test_the_marker_is_added_to_any_shape_of_resources_and_nothing_is_lost(webhook, resources):
    new = pod(queue="a")
    new["spec"]["containers"][0]["resources"] = resources

    marked = patched(new, webhook.mutate(review(new)).body)["spec"]["containers"][0]["resources"]

    for name in ("requests", "limits"):
        assert marked[name] == ((resources or {}).get(name) or {}) | {MARKER_RESOURCE: "1"}


def test_a_marker_that_asks_for_nothing_is_set_right(webhook):
    new = pod(queue="a", managed=True, gated=True)
    new["spec"]["containers"][0]["resources"] = {name: {MARKER_RESOURCE: "0"} for name in ("requests", "limits")}

    assert marks(patched(new, webhook.mutate(review(new)).body)) == ("true", True, "1", "1")


def test_gates_labels_and_notes_of_others_stay(webhook):
    new = pod(queue="a", foreign=True, priority_class="low", annotations={"note": "x"})

    marked = patched(new, webhook.mutate(review(new)).body)

    assert gates(marked) == [FOREIGN_GATE, GATE]
    assert marked["metadata"]["annotations"] == new["metadata"]["annotations"]
    assert marked["metadata"]["labels"] == new["metadata"]["labels"] | {MANAGED_LABEL: "true"}


def test_to_mark_twice_changes_nothing(webhook):
    new = pod(queue="a")
    marked = patched(new, webhook.mutate(review(new)).body)

    again = response(webhook.mutate(review(marked)).body)

    assert again == {"uid": "u-1", "allowed": True}


@pytest.mark.parametrize(
    "new",
    [
        pytest.param(pod(), id="no queue"),
        pytest.param(pod(queue="a", node="n1"), id="already on a node"),
        pytest.param(pod(queue="a", annotations={"kubernetes.io/config.mirror": "x"}), id="a static pod"),
        pytest.param(
            pod(queue="a") | {"metadata": {"ownerReferences": [{"kind": "DaemonSet", "controller": True}]}},
            id="a pod of a DaemonSet",
        ),
        pytest.param({"metadata": {"name": "x"}, "spec": {}}, id="a pod without annotations, labels, containers"),
        pytest.param({}, id="an empty object"),
    ],
)
def test_other_pods_pass_unchanged(webhook, new):
    assert response(webhook.mutate(review(new)).body) == {"uid": "u-1", "allowed": True}


def test_a_default_queue_serves_a_pod_that_names_none_and_is_written_on_it(webhook):
    new = pod()

    marked = patched(new, webhook.mutate(review(new, namespace="with-default")).body)

    assert marked["metadata"]["annotations"] == {QUEUE_NAME: "default"}
    assert marks(marked) == ("true", True, "1", "1")


def test_a_default_queue_does_not_overrule_the_pods_own(webhook):
    new = pod(queue="a")

    marked = patched(new, webhook.mutate(review(new, namespace="with-default")).body)

    assert marked["metadata"]["annotations"] == {QUEUE_NAME: "a"}


def test_two_different_queues_are_worth_a_warning(webhook):
    answer = response(webhook.mutate(review(pod(queue="a", queue_label="b"))).body)

    (warning,) = answer["warnings"]
    assert len(warning) <= 120


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"{}", id="an empty object"),
        pytest.param(b"[" * 200_000, id="nested deeply"),
        pytest.param(review(pod()).replace(b"k8s.io/v1", b"k8s.io/v1beta1"), id="another version"),
        pytest.param(review(pod()).replace(b"AdmissionReview", b"TokenReview"), id="another kind"),
        pytest.param(orjson.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}), id="no request"),
        pytest.param(review(pod()).replace(b'"labels":{', b'"labels":{"n":1,'), id="a label that is a number"),
    ],
)
def test_what_is_no_review_is_refused_by_status(webhook, body):
    assert webhook.mutate(body).status == 400
    assert webhook.validate(body).status == 400


def test_a_pod_without_containers_is_left_for_the_api_server_to_refuse(webhook):
    new = {"metadata": {"annotations": {QUEUE_NAME: "a"}}, "spec": {}}

    marked = patched(new, webhook.mutate(review(new)).body)

    assert (gates(marked), marked["spec"].get("containers")) == ([GATE], None)
