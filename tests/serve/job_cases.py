"""What may and may not be done to a queued Job: one table, asked of the webhook here and of the policy on the rig.

Each case is a Job before and after (before None: created), and a part of the refusal (empty: allowed).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from extender.model.jobs import EVICTED_ANNOTATION, UNIT_ADMISSION_ANNOTATION, UNIT_ANNOTATION
from extender.model.pods import ADMISSION_ANNOTATION, MANAGED_LABEL, PRIORITY_CLASS, QUEUE_NAME

LEAST = "kueue.x-k8s.io/job-min-parallelism"
EQUAL = "kueue.x-k8s.io/job-completions-equal-parallelism"


def job(
    *,
    queue: str = "",
    queue_label: str = "",
    managed: bool = False,
    suspended: bool = False,
    priority_class: str = "",
    annotations: dict[str, str] | None = None,
    marks: dict[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A Job of four pods, as a user or we would write it."""
    told = {QUEUE_NAME: queue, **(annotations or {})}
    labels = {QUEUE_NAME: queue_label, MANAGED_LABEL: "true" if managed else "", PRIORITY_CLASS: priority_class}
    return {
        "metadata": {
            "annotations": {key: value for key, value in told.items() if value},
            "labels": {key: value for key, value in labels.items() if value},
        },
        "spec": {
            "suspend": suspended,
            "parallelism": 4,
            "completions": 4,
            "template": {
                "metadata": {"annotations": marks or {}},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox:1.37"}]},
            },
            **spec,
        },
    }


class JobCase(NamedTuple):
    """One deed of somebody else."""

    says: str
    old: dict[str, Any] | None
    new: dict[str, Any]
    refusal: str = ""


UNIT = {UNIT_ANNOTATION: "job"}
WAITING: dict[str, Any] = {"queue": "a", "managed": True, "suspended": True, "marks": UNIT}
RUNNING: dict[str, Any] = {**WAITING, "suspended": False, "annotations": {ADMISSION_ANNOTATION: "{}"}}
PARTIAL: dict[str, Any] = {**RUNNING, "annotations": {ADMISSION_ANNOTATION: "{}", LEAST: "2"}}

CREATED = (
    JobCase("a Job without a queue is created", None, job()),
    JobCase("a Job with a queue is created", None, job(**WAITING)),
    JobCase("an admission cannot be forged", None, job(annotations={ADMISSION_ANNOTATION: "{}"}), "by cohort-extender"),
    JobCase("nor a past one", None, job(**WAITING, annotations={EVICTED_ANNOTATION: "{}"}), "by cohort-extender"),
    JobCase("our label stands for a queue", None, job(managed=True), "name a queue instead"),
    JobCase("a queue must be a name", None, job(queue="No/Name", suspended=True), "is not the name of a LocalQueue"),
    JobCase("a minimum must be a number", None, job(**WAITING, annotations={LEAST: "two"}), "a whole number from 1"),
    JobCase("and less than the pods", None, job(**WAITING, annotations={LEAST: "4"}), "a whole number from 1"),
    JobCase("a minimum is written", None, job(**WAITING, annotations={LEAST: "2"})),
    JobCase("equal completions are for an Indexed Job", None, job(**WAITING, annotations={EQUAL: "true"}), "Indexed"),
    JobCase(
        "which may say so",
        None,
        job(**WAITING, annotations={EQUAL: "true"}, completionMode="Indexed"),
    ),
)

UPDATED = (
    JobCase("a note of others may be added", job(**WAITING), job(**WAITING, annotations={"note": "x"})),
    JobCase("it is not started by hand", job(**WAITING), job(**WAITING | {"suspended": False}), "started by"),
    JobCase("but may be suspended by hand", job(**RUNNING), job(**RUNNING | {"suspended": True})),
    JobCase(
        "an admission is not taken away", job(**RUNNING), job(**RUNNING | {"annotations": {}}), "by cohort-extender"
    ),
    JobCase(  # one without any labels would get those of its template
        "nor our label",
        job(**WAITING, priority_class="low"),
        job(**WAITING | {"managed": False}, priority_class="low"),
        "by cohort-extender",
    ),
    JobCase("nor the marks of its template", job(**WAITING), job(**WAITING | {"marks": {}}), "by cohort-extender"),
    JobCase(
        "nor are these forged",
        job(**WAITING),
        job(**WAITING | {"marks": {**UNIT, UNIT_ADMISSION_ANNOTATION: "{}"}}),
        "by cohort-extender",
    ),
    JobCase("a waiting Job may change its queue", job(**WAITING), job(**WAITING | {"queue": "b"})),
    JobCase("a running one may not", job(**RUNNING), job(**RUNNING | {"queue": "b"}), "cannot change while"),
    JobCase("unless it is suspended with it", job(**RUNNING), job(**RUNNING | {"queue": "b", "suspended": True})),
    JobCase("a priority class may change", job(**RUNNING, priority_class="low"), job(**RUNNING, priority_class="high")),
    JobCase("but not go", job(**RUNNING, priority_class="low"), job(**RUNNING), "not removed"),
    JobCase("what was admitted in part keeps its size", job(**PARTIAL), job(**PARTIAL, parallelism=3), "set by its"),
    JobCase("any other Job may grow and shrink", job(**RUNNING), job(**RUNNING, parallelism=3)),
    JobCase("a Job without a queue is started by anybody", job(suspended=True), job()),
)
