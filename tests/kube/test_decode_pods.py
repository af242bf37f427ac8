"""Pods and nodes: where a pod says what it wants, and what is said when that cannot be read."""

import orjson
import pytest

from extender.kube.decode import milliseconds
from extender.kube.decode_nodes import CODEC as NODES
from extender.kube.decode_pods import CODEC
from extender.model.events import NodeSeen
from extender.model.pods import Node, Owner, Pod
from extender.model.quota import Requirement, Taint, Toleration
from tests.support.objects import node_json, pod_json

QUEUE = "kueue.x-k8s.io/queue-name"
GROUP = "kueue.x-k8s.io/pod-group-name"
TOTAL = "kueue.x-k8s.io/pod-group-total-count"
LEAST = "cohort-extender.io/pod-group-min-count"
CLASS = "kueue.x-k8s.io/priority-class"
MAX_TIME = "kueue.x-k8s.io/max-exec-time-seconds"


def pod(*, labels=None, annotations=None, spec=None, status=None, meta=None):
    obj = pod_json("p")
    obj["metadata"].update(meta or {})
    for part, change in (("labels", labels), ("annotations", annotations)):
        if change is not None:
            obj["metadata"][part] = change
    obj["spec"].update(spec or {})
    obj["status"].update(status or {})
    return obj


def seen(obj):
    return CODEC.item(orjson.dumps(obj)).fact.pod


def test_a_pod_of_a_job():
    assert seen(pod_json("p", version="1001")) == Pod(
        uid="uid-p",
        namespace="research",
        name="p",
        resource_version="1001",
        created_ms=1772353815000,
        queue="training",
        requests=(("cpu", 8000), ("memory", 32 * 2**30), ("nvidia.com/gpu", 1)),
        priority=100,
        gates=("cohort-extender.io/admission",),
        managed=True,
        tolerations=(
            Toleration("node.kubernetes.io/not-ready", "Exists", "", "NoExecute", 300),
            Toleration("node.kubernetes.io/unreachable", "Exists", "", "NoExecute", 300),
        ),
        owner=Owner("Job", "train-resnet", "5b1f3a52-7f0e-4f0e-9d58-0b7f0a4d3a11"),
    )


@pytest.mark.parametrize(
    ("changes", "field", "want"),
    [
        pytest.param({"labels": {QUEUE: "b"}, "annotations": {}}, "queue", "b", id="queue by label"),
        pytest.param({"labels": {QUEUE: "b"}, "annotations": {QUEUE: "a"}}, "queue", "a", id="the annotation is first"),
        pytest.param({"annotations": {}}, "queue", "", id="a managed pod without a queue"),
        pytest.param({"labels": {}}, "managed", False, id="no label of ours"),
        pytest.param({"labels": {CLASS: "high"}}, "priority_class", "high", id="priority class by label"),
        pytest.param({"annotations": {CLASS: "high"}}, "priority_class", "high", id="priority class by annotation"),
        pytest.param({"spec": {"priority": None}}, "priority", 0, id="no priority"),
        pytest.param({"annotations": {GROUP: "g", TOTAL: "4"}}, "group", "g", id="group by annotation"),
        pytest.param({"annotations": {GROUP: "g", TOTAL: "4"}}, "group_total", 4, id="its count"),
        pytest.param({"annotations": {GROUP: "g", TOTAL: "4", LEAST: "2"}}, "group_min", 2, id="how few may start"),
        pytest.param({"labels": {QUEUE: "q", GROUP: "g"}, "annotations": {TOTAL: "4"}}, "group", "g", id="by label"),
        pytest.param({"status": {"phase": "Running"}}, "phase", "Running", id="phase"),
        pytest.param({"spec": {"nodeName": "n1"}}, "node", "n1", id="node"),
        pytest.param({"meta": {"deletionTimestamp": "2026-03-01T08:00:00Z"}}, "deleting", True, id="deleting"),
        pytest.param(
            {"spec": {"schedulingGates": [{"name": "a/b"}, {"name": "cohort-extender.io/admission"}]}},
            "gates",
            ("a/b", "cohort-extender.io/admission"),
            id="gates of others are kept",
        ),
        pytest.param({"spec": {"schedulingGates": None}}, "gates", (), id="no gates"),
        pytest.param(
            {"annotations": {"cohort-extender.io/admission": "{}"}}, "admission", "{}", id="the admission as it stands"
        ),
        pytest.param({"annotations": {"cohort-extender.io/adopted": "true"}}, "adopted", True, id="adopted"),
        pytest.param({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, "ready", True, id="ready"),
        pytest.param(
            {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, "ready", False, id="not ready"
        ),
        pytest.param({"status": {"conditions": None}}, "ready", False, id="no conditions"),
        pytest.param(
            {"status": {"conditions": [{"type": "cohort-extender.io/Admitted", "status": "False", "message": "why"}]}},
            "admitted_condition",
            "why",
            id="our condition",
        ),
        pytest.param(
            {
                "status": {
                    "conditions": [{"type": "cohort-extender.io/Admitted", "status": "True", "reason": "Admitted"}]
                }
            },
            "admitted_reason",
            "Admitted",
            id="the reason of our condition",
        ),
        pytest.param({"spec": {"schedulingGroup": {"podGroupName": "g"}}}, "pod_group", "g", id="a PodGroup"),
        pytest.param({"spec": {"schedulingGroup": {}}}, "pod_group", "", id="no PodGroup"),
        pytest.param({"labels": {MAX_TIME: "60"}}, "run_s_max", 60, id="the most it may run"),
        pytest.param(
            {"spec": {"nodeSelector": {"b": "2", "a": "1"}}}, "node_selector", (("a", "1"), ("b", "2")), id="ns"
        ),
        pytest.param({"spec": {"tolerations": None}}, "tolerations", (), id="no tolerations"),
        pytest.param(
            {"meta": {"ownerReferences": [{"kind": "X", "name": "x", "uid": "u"}]}}, "owner", None, id="owner"
        ),
        pytest.param(
            {
                "spec": {
                    "affinity": {
                        "nodeAffinity": {
                            "requiredDuringSchedulingIgnoredDuringExecution": {
                                "nodeSelectorTerms": [
                                    {"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["a100"]}]},
                                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
                                ]
                            }
                        }
                    }
                }
            },
            "affinity",
            ((Requirement("gpu", "In", ("a100",)),), ()),
            id="required node affinity",
        ),
        pytest.param(
            {"spec": {"affinity": {"podAffinity": {}}}}, "affinity", (), id="other affinity says nothing here"
        ),
    ],
)
def test_a_field_of_a_pod(changes, field, want):
    got = seen(pod(**changes))

    assert (getattr(got, field), got.problem) == (want, "")


@pytest.mark.parametrize(
    ("annotations", "want"),
    [
        ({GROUP: "g"}, f"{GROUP} without annotation {TOTAL}; write how many pods it has"),
        ({GROUP: "g", TOTAL: "four"}, f"{TOTAL}: 'four' is not a count; write 1 or more"),
        ({GROUP: "g", TOTAL: "0"}, f"{TOTAL}: '0' is not a count; write 1 or more"),
        ({GROUP: "g", TOTAL: "٤"}, f"{TOTAL}: '٤' is not a count; write 1 or more"),
        ({GROUP: "g", TOTAL: "9" * 5000}, f"{TOTAL}: '{'9' * 32}' is not a count; write 1 or more"),
        ({GROUP: "g", TOTAL: "2", LEAST: "3"}, f"{LEAST}: 3 is above {TOTAL} 2"),
        ({TOTAL: "4"}, f"{TOTAL} without {GROUP}; set both or none"),
        ({GROUP: "G!", TOTAL: "4"}, f"{GROUP}: 'G!' is not a name"),
        ({QUEUE: "no such name"}, f"{QUEUE}: 'no such name' is not a name of a LocalQueue"),
    ],
)
def test_what_is_wrong_with_a_pods_own_words(annotations, want):
    assert seen(pod(annotations=annotations)).problem == want


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        (
            {"containers": [{"resources": {"requests": {"cpu": "1x"}}}]},
            "spec.containers[0].resources.requests[cpu]: '1x' is not a quantity; write for example 4, 500m or 12Gi",
        ),
        ({"tolerations": "none"}, "spec.tolerations: cannot be read"),
        ({"affinity": {"nodeAffinity": []}}, "spec.affinity: cannot be read"),
    ],
)
def test_a_part_of_a_pod_that_cannot_be_read(spec, want):
    assert seen(pod(spec=spec)).problem == want


@pytest.mark.parametrize(
    ("changes", "concerns"),
    [
        pytest.param({"labels": {}, "annotations": {}, "spec": {"schedulingGates": None}}, False, id="nothing of ours"),
        pytest.param({"labels": {}, "annotations": {}}, True, id="our gate"),
        pytest.param({"annotations": {"kubernetes.io/config.mirror": "h"}}, False, id="a static pod"),
        pytest.param(
            {"labels": {QUEUE: "q"}, "annotations": {}, "spec": {"schedulingGates": None}}, True, id="a queue"
        ),
        pytest.param(
            {"labels": {}, "annotations": {"cohort-extender.io/admission": ""}, "spec": {"schedulingGates": None}},
            True,
            id="an admission",
        ),
    ],
)
def test_which_pods_concern_us(changes, concerns):
    item = CODEC.item(orjson.dumps(pod(**changes)))

    assert (item.fact is not None, item.problem) == (concerns, "")


def test_a_pod_whose_spec_is_no_object_is_reported_and_skipped():
    item = CODEC.item(orjson.dumps({**pod_json("p"), "spec": []}))

    assert (item.fact, item.problem) == (None, "spec: expected `object | null`, got `array`")


def test_a_node():
    item = NODES.item(orjson.dumps(node_json("n1")))

    assert item.fact == NodeSeen(
        Node(
            "n1",
            (("gpu", "a100"), ("kubernetes.io/hostname", "n1")),
            (Taint("gpu", "a100", "NoSchedule"),),
            (("cpu", 64_000), ("memory", 527955616 * 1024), ("nvidia.com/gpu", 8), ("pods", 110)),
        )
    )


def test_a_node_of_which_a_part_cannot_be_read_keeps_the_rest():
    obj = node_json("n1")
    obj["status"]["allocatable"] = {"cpu": "lots", "pods": "110"}
    item = NODES.item(orjson.dumps(obj))

    assert item.fact.node.allocatable == (("pods", 110),)
    assert item.problem.startswith("status.allocatable[cpu]: 'lots' is not a quantity")


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("1970-01-01T00:00:01Z", 1000),
        ("2026-03-01T08:30:15.123456Z", 1772353815123),
        ("2026-03-01T09:30:15+01:00", 1772353815000),
        ("", 0),
        (None, 0),
        ("yesterday", 0),
        ("0001-01-01T00:00:00Z", -62135596800000),
    ],
)
def test_times(text, want):
    assert milliseconds(text) == want
