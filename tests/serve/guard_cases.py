"""What may and may not be done to a queued pod: one table, asked of the webhook here and of the policy on the rig.

Each case is a pod before and after (before None: created), who does it, and a part of the refusal (empty: allowed).
Pods are said shortly: ``pod(queue="a", gated=True)``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from extender.model.pods import (
    ADMISSION_ANNOTATION,
    GATE,
    MANAGED_LABEL,
    POD_GROUP_NAME,
    POD_GROUP_TOTAL_COUNT,
    PRIORITY_CLASS,
    QUEUE_NAME,
)

WRITER = "system:serviceaccount:cohort-system:cohort-extender"
FOREIGN_GATE = "other.example.com/gate"


def pod(
    *,
    queue: str = "",
    queue_label: str = "",
    managed: bool | str = False,
    gated: bool = False,
    foreign: bool = False,
    admission: str = "",
    group: str = "",
    total: str = "",
    priority_class: str = "",
    node: str = "",
    annotations: dict[str, str] | None = None,
) -> dict[str, Any]:
    """A pod, as a user or we would write it."""
    told = {
        QUEUE_NAME: queue,
        ADMISSION_ANNOTATION: admission,
        POD_GROUP_NAME: group,
        POD_GROUP_TOTAL_COUNT: total,
        **(annotations or {}),
    }
    labels = {
        QUEUE_NAME: queue_label,
        MANAGED_LABEL: "true" if managed is True else managed or "",
        PRIORITY_CLASS: priority_class,
    }
    gates = [{"name": FOREIGN_GATE}] * foreign + [{"name": GATE}] * gated
    spec: dict[str, Any] = {"containers": [{"name": "main", "image": "busybox:1.37"}]}
    if gates:
        spec["schedulingGates"] = gates
    if node:
        spec["nodeName"] = node
    return {
        "metadata": {
            "annotations": {key: value for key, value in told.items() if value},
            "labels": {key: value for key, value in labels.items() if value},
        },
        "spec": spec,
    }


class Case(NamedTuple):
    """One deed. *can_arise* false: its old pod can only stem from before the installation."""

    says: str
    old: dict[str, Any] | None
    new: dict[str, Any]
    refusal: str = ""
    user: str = "alice"
    can_arise: bool = True


WAITING = {"queue": "a", "managed": True, "gated": True}
ADMITTED = {"queue": "a", "managed": True, "admission": "{}"}

CREATIONS = (
    Case("a pod without a queue is created", None, pod()),
    Case("a pod with a queue is created", None, pod(**WAITING)),
    Case("a pod with the queue in a label is created", None, pod(queue_label="a", managed=True, gated=True)),
    Case("an admission cannot be forged", None, pod(**WAITING, admission="{}"), "written by cohort-extender only"),
    Case("nor on a pod without a queue", None, pod(admission="{}"), "written by cohort-extender only"),
    Case("our label has one value", None, pod(queue="", managed="maybe"), 'can only be "true"'),
    Case(
        "a queue must be a name",
        None,
        pod(queue="No/Name", managed=True, gated=True),
        "is not the name of a LocalQueue",
    ),
    Case("a queue and a node exclude each other", None, pod(queue="a", node="n1"), "cannot choose its node"),
    Case("a node without a queue is no matter of ours", None, pod(node="n1")),
    Case("a group comes with its size", None, pod(**WAITING, group="g"), "come together"),
    Case("and the size with its group", None, pod(**WAITING, total="3"), "come together"),
    Case("a group with its size is created", None, pod(**WAITING, group="g", total="3")),
    Case("a group must be a name", None, pod(**WAITING, group="G!", total="3"), "is not a valid name"),
    Case("a size must be a number", None, pod(**WAITING, group="g", total="many"), "whole number from 1"),
    Case("a size must be at least one", None, pod(**WAITING, group="g", total="0"), "whole number from 1"),
)

UPDATES = (
    Case("a note of others may be added", pod(**WAITING), pod(**WAITING, annotations={"note": "x"})),
    Case(
        "the gate is not removed by hand",
        pod(**WAITING),
        pod(queue="a", managed=True),
        "removed by cohort-extender only",
    ),
    Case("but by us", pod(**WAITING), pod(**ADMITTED), user=WRITER),
    Case("a gate of others may be removed", pod(**WAITING, foreign=True), pod(**WAITING)),
    Case(
        "an admission is not written by hand",
        pod(**WAITING),
        pod(**WAITING, admission="{}"),
        "written by cohort-extender only",
    ),
    Case("nor changed", pod(**ADMITTED), pod(**ADMITTED | {"admission": "[]"}), "written by cohort-extender only"),
    Case("nor removed", pod(**ADMITTED), pod(queue="a", managed=True), "written by cohort-extender only"),
    Case(
        "our label is not removed by hand",
        pod(**ADMITTED),
        pod(queue="a", admission="{}"),
        "written by cohort-extender only",
    ),
    Case("nor added", pod(queue="a"), pod(queue="a", managed=True), "written by cohort-extender only"),
    Case("but by us, to take in a pod", pod(queue="a"), pod(queue="a", managed=True), user=WRITER),
    Case("a waiting pod may change its queue", pod(**WAITING), pod(**WAITING | {"queue": "b"})),
    Case(
        "an admitted one may not",
        pod(**ADMITTED),
        pod(**ADMITTED | {"queue": "b"}),
        "cannot change once the pod is admitted",
    ),
    Case("not even if we ask", pod(**ADMITTED), pod(**ADMITTED | {"queue": "b"}), "cannot change", WRITER),
    Case("a pod without a queue may get one", pod(), pod(queue="a")),
    Case(
        "a priority may change while it runs",
        pod(**ADMITTED, priority_class="low"),
        pod(**ADMITTED, priority_class="high"),
    ),
    Case("but not go", pod(**WAITING, priority_class="low"), pod(**WAITING), "not removed"),
    Case("nor come when it is admitted", pod(**ADMITTED), pod(**ADMITTED, priority_class="low"), "nor added"),
    Case("it may come while it waits", pod(**WAITING), pod(**WAITING, priority_class="low")),
    Case(
        "a group cannot change",
        pod(**WAITING, group="g", total="2"),
        pod(**WAITING, group="h", total="2"),
        "cannot change once it is set",
    ),
    Case("a group may come later", pod(**WAITING), pod(**WAITING, group="g", total="2")),
    Case(
        "a label from before the installation does not stand in the way",
        pod(managed="maybe"),
        pod(managed="maybe", annotations={"note": "x"}),
        can_arise=False,
    ),
    Case(
        "but we give it one value too",
        pod(**ADMITTED),
        pod(**ADMITTED | {"managed": "maybe"}),
        'can only be "true"',
        WRITER,
    ),
    Case(
        "words from before the installation do not stand in the way",
        pod(queue="a", total="many"),
        pod(queue="a", total="many", annotations={"note": "x"}),
        can_arise=False,
    ),
)
