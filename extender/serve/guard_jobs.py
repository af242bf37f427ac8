"""Who may touch the marks of a queued Job and start it, and what it may say: the validating webhook for batch/v1 Job.

Twin of ``manifests/components/policy-guard/jobs.yaml``, for clusters whose administrators install no policies. Source:
jobs specification, sections 1 and 8.
"""

import re
from typing import Any

import msgspec

from extender.model.errors import UserError
from extender.model.jobs import (
    EQUAL_COMPLETIONS,
    EVICTED_ANNOTATION,
    MIN_PARALLELISM,
    REQUEUE_ANNOTATION,
    UNIT_ADMISSION_ANNOTATION,
    UNIT_ANNOTATION,
)
from extender.model.pods import ADMISSION_ANNOTATION, MANAGED_LABEL, PRIORITY_CLASS, QUEUE_NAME
from extender.model.trees import at
from extender.serve.envelope import Question, read
from extender.serve.guard import NAME, NAMING
from extender.serve.http import Reply, refuse
from extender.serve.jobs import is_controlled, is_managed_by_others
from extender.serve.review import Outcome, write_review

Tree = dict[str, Any]
WRITTEN_BY_US = (ADMISSION_ANNOTATION, EVICTED_ANNOTATION, REQUEUE_ANNOTATION)
_COUNT = re.compile(r"[1-9][0-9]{0,8}")


_REVIEW = msgspec.json.Decoder(Question[Tree])


class JobGuard:
    """Validates Jobs. *writer* is the user name of our own service account."""

    def __init__(self, *, writer: str) -> None:
        self._writer = writer

    def validate(self, body: bytes) -> Reply:
        """POST: refuse to let others touch our marks, or start a Job that waits."""
        try:
            request = read(_REVIEW, body)
        except UserError as error:
            return refuse(400, str(error))
        outcome = Outcome()
        ours = request.user_info.username == self._writer
        about_a_job = request.is_about("batch", "Job")
        if about_a_job and request.object is not None and request.operation in ("CREATE", "UPDATE") and not ours:
            outcome = check_job(request.object, request.old_object if request.operation == "UPDATE" else None)
        return Reply(200, write_review(request.uid, outcome), "denied" if outcome.denied else "allowed")


class _Job:
    """A Job's words; those of a Job that does not exist are empty."""

    def __init__(self, tree: Tree | None) -> None:
        self.tree = tree or {}
        self.labels = _map(at(self.tree, ("metadata", "labels")))
        self.annotations = _map(at(self.tree, ("metadata", "annotations")))
        self.marks = _map(at(self.tree, ("spec", "template", "metadata", "annotations")))
        self.suspended = at(self.tree, ("spec", "suspend")) is True
        self.queue = self.annotations.get(QUEUE_NAME) or self.labels.get(QUEUE_NAME) or ""

    @property
    def concerns_us(self) -> bool:
        """Whether it names a queue, or carries a mark."""
        words = (QUEUE_NAME, *WRITTEN_BY_US)
        return any(key in self.labels for key in (MANAGED_LABEL, QUEUE_NAME)) or any(
            key in self.annotations for key in words
        )

    def number(self, field: str, default: int) -> int:
        """A number of its spec."""
        found = at(self.tree, ("spec", field))
        return found if isinstance(found, int) else default


def check_job(tree: Tree, before: Tree | None) -> Outcome:
    """Whether a Job may be created (*before* None), or become what it is from *before*, by somebody else than us."""
    job, old = _Job(tree), _Job(before)
    if is_controlled(_map(tree.get("metadata"))) or is_managed_by_others(tree):
        return Outcome()
    if not (job.concerns_us or old.concerns_us):
        return Outcome()
    forbidden = _forgery(job, old, created=before is None)
    if forbidden:
        return Outcome(denied=forbidden, code=403)
    return Outcome(denied=_words(job, old, created=before is None), code=422)


def _forgery(job: _Job, old: _Job, *, created: bool) -> str:
    if any(job.annotations.get(key) != old.annotations.get(key) for key in WRITTEN_BY_US):
        return f"the annotations {ADMISSION_ANNOTATION}, evicted and requeue are written by cohort-extender only"
    if not created and job.labels.get(MANAGED_LABEL) != old.labels.get(MANAGED_LABEL):
        return f"the label {MANAGED_LABEL} is written by cohort-extender only"
    if created and MANAGED_LABEL in job.labels and not job.queue:
        return f"the label {MANAGED_LABEL} is written by cohort-extender only; name a queue instead"
    if MANAGED_LABEL not in old.labels:
        return ""
    if any(job.marks.get(key) != old.marks.get(key) for key in (UNIT_ANNOTATION, UNIT_ADMISSION_ANNOTATION)):
        return (
            f"the annotations {UNIT_ANNOTATION} and unit-admission of the template are written by cohort-extender only"
        )
    if job.queue and old.suspended and not job.suspended:
        return (
            "a queued Job is started by cohort-extender only, when its queue has room; if it was suspended by hand, "
            "remove its annotation cohort-extender.io/active"
        )
    return ""


def _words(job: _Job, old: _Job, *, created: bool) -> str:
    managed = MANAGED_LABEL in old.labels
    if created and job.queue and not NAME.fullmatch(job.queue):
        return f"{QUEUE_NAME} is not the name of a LocalQueue ({NAMING})"
    if managed and not job.suspended and job.queue != old.queue:
        return f"{QUEUE_NAME} cannot change while the Job runs; suspend it in the same change"
    if managed and old.labels.get(PRIORITY_CLASS) and not job.labels.get(PRIORITY_CLASS):
        return f"{PRIORITY_CLASS} can be changed, but not removed"
    return _least(job, old, created=created, managed=managed) or (_equal(job) if created else "")


def _least(job: _Job, old: _Job, *, created: bool, managed: bool) -> str:
    least = job.annotations.get(MIN_PARALLELISM, "")
    parallelism = job.number("parallelism", 1)
    count = min(parallelism, job.number("completions", parallelism))
    changed = least and least != old.annotations.get(MIN_PARALLELISM, "")
    if changed and not (_COUNT.fullmatch(least) and int(least) < count):
        return f"{MIN_PARALLELISM} must be a whole number from 1 and less than the number of pods"
    runs = not created and managed and not old.suspended
    if least and runs and at(job.tree, ("spec", "parallelism")) != at(old.tree, ("spec", "parallelism")):
        return f"spec.parallelism of a running Job with {MIN_PARALLELISM} is set by its admission"
    return ""


def _equal(job: _Job) -> str:
    equal = job.annotations.get(EQUAL_COMPLETIONS, "")
    indexed = at(job.tree, ("spec", "completionMode")) == "Indexed"
    same = job.number("completions", 1) == job.number("parallelism", 1)
    if equal in ("", "false") or (equal == "true" and indexed and same):
        return ""
    return (
        f'{EQUAL_COMPLETIONS} is "true" or "false", and true only for an Indexed Job whose completions equal '
        "its parallelism"
    )


def _map(found: object) -> Tree:
    return found if isinstance(found, dict) else {}
