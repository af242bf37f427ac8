"""The two webhooks, sans-IO: an AdmissionReview in, an AdmissionReview out.

Constant time, no call to anybody: decided from the request and one lookup in memory. In doubt the pod is gated, since a
wrongly gated pod waits and a wrongly ungated one runs. Nothing is charged or remembered here: the object may still be
refused, its name is not known, and dry runs come by too. Source: webhooks specification, section 6.
"""

from collections.abc import Callable
from typing import Protocol

from extender.model.errors import UserError
from extender.model.pods import QUEUE_NAME
from extender.serve.guard import check
from extender.serve.http import Reply, refuse
from extender.serve.marks import is_of_a_job, mark, untouchable
from extender.serve.review import Outcome, Pod, Review, read_review, write_review

DEFAULT_QUEUE = "default"


class Queues(Protocol):
    """What the mutating webhook asks."""

    def has_default_queue(self, namespace: str) -> bool:
        """Whether the namespace has a LocalQueue that serves pods which name none."""
        ...


class Webhook:
    """Mutates and validates pods. *writer* is the user name of our own service account."""

    def __init__(self, queues: Queues, *, writer: str) -> None:
        self._queues = queues
        self._writer = writer

    def mutate(self, body: bytes) -> Reply:
        """POST: mark a new pod that is to wait in a queue."""
        return _answer(body, self._mutated)

    def validate(self, body: bytes) -> Reply:
        """POST: refuse to let others touch our marks."""
        return _answer(body, self._validated)

    def _mutated(self, review: Review) -> Outcome:
        pod = review.pod
        if pod is None or review.operation != "CREATE" or untouchable(pod):
            return Outcome()
        queue = pod.word(QUEUE_NAME)
        if is_of_a_job(pod):
            return Outcome(patch=tuple(mark(pod, default_queue="")))
        if not queue and not self._queues.has_default_queue(review.namespace):
            return Outcome()
        operations = mark(pod, default_queue="" if queue else DEFAULT_QUEUE)
        return Outcome(patch=tuple(operations), warnings=_warnings(pod))

    def _validated(self, review: Review) -> Outcome:
        if review.pod is None or review.operation not in ("CREATE", "UPDATE"):
            return Outcome()
        old = review.old if review.operation == "UPDATE" else None
        return check(review.pod, old, by_us=review.username == self._writer)


def _warnings(pod: Pod) -> tuple[str, ...]:
    by_annotation, by_label = pod.annotations.get(QUEUE_NAME), pod.labels.get(QUEUE_NAME)
    if by_annotation and by_label and by_annotation != by_label:
        return ("two queues are named; the annotation counts, the label does not",)
    return ()


def _answer(body: bytes, decide: Callable[[Review], Outcome]) -> Reply:
    try:
        review = read_review(body)
    except UserError as error:
        return refuse(400, str(error))
    outcome = decide(review)
    word = "denied" if outcome.denied else "changed" if outcome.patch else "allowed"
    return Reply(200, write_review(review.uid, outcome), word)
