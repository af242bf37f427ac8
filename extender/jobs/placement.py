"""Answers kube-scheduler about the pods of Jobs too: judged by their Job's admission and by their rank among its pods.

Pure and repeatable like the answers about other pods, and as fast: the Job is found by the pod's annotation, its
controllers are followed up to the Job, and ranks matter only while the Job has more pods than it was admitted for.
"""

from extender.jobs.shelf import Shelf
from extender.model.errors import NotYetSeen
from extender.model.names import LocalQueueName
from extender.model.pods import Owner, Pod
from extender.model.questions import PodInQuestion
from extender.model.quota import Labels
from extender.pods.placement import Placement, Protection


class JobPlacement(Placement):
    """Filter, prioritize and preempt, over all books."""

    def __init__(self, shelf: Shelf, protection: Protection) -> None:
        super().__init__(shelf, protection)
        self._jobs = shelf.jobs

    def concerns(self, question: PodInQuestion) -> bool:
        """Whether the pod is one that waits for quota, by itself or with its Job."""
        return question.unit or super().concerns(question)

    def _admitted_labels(self, question: PodInQuestion, pod: Pod | None) -> Labels | None:
        """The labels that a node must carry; None if the pod's Job is not admitted, or not for so many pods."""
        if not question.unit:
            return super()._admitted_labels(question, pod)
        asked = pod or _as_asked(question)
        if self._jobs.is_ahead(asked):
            raise NotYetSeen(f"pod {question.namespace}/{question.name}: its Job's admission has not reached us yet")
        given = self._jobs.assignment_of(asked)
        if given is None:
            return None
        if pod is None and not self._jobs.has_a_place_left(asked, given.name, given.count):
            raise NotYetSeen(f"pod {question.namespace}/{question.name} has not reached the extender yet")
        if pod is not None and not self._jobs.may_take_a_place(pod, given.name, given.count):
            return None
        return self._jobs.labels_of(given)


def _as_asked(question: PodInQuestion) -> Pod:
    """The pod as the scheduler shows it: it often asks before our own watch has brought the pod."""
    return Pod(
        uid=question.uid,
        namespace=question.namespace,
        name=question.name,
        resource_version="",
        created_ms=0,
        queue=LocalQueueName(question.queue),
        requests=(),
        owner=Owner("", "", question.controller) if question.controller else None,
        unit=True,
        unit_admission=question.unit_admission,
    )
