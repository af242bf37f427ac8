"""Answers kube-scheduler: which nodes an admitted pod may use, which it should, whom it may push away.

Pure and repeatable: the scheduler asks speculatively, twice, and in any order; nothing is remembered. A pod is judged
by its UID, its admission and its flavors only, never by node usage, which the scheduler may have changed on paper.
"""

from collections.abc import Sequence
from typing import Protocol

from extender.model.errors import NotYetSeen
from extender.model.names import NodeName, ResourceName, WorkloadUid
from extender.model.pods import Pod
from extender.model.questions import PlacementQuestion, PodInQuestion, PreemptionQuestion
from extender.model.quota import Labels
from extender.model.verdicts import FilterVerdict, NodeScore, NodeVictims
from extender.pods.admission import read_admission
from extender.pods.books import Books, labels_of

NOT_ADMITTED = "the pod is not admitted to its ClusterQueue"
WRONG_FLAVOR = "the node is not of the admitted flavor"
BOUND_ELSEWHERE = "the pod is bound to another node"
NODE_UNKNOWN = "the node is not known to the extender yet"
SCORE_MAX = 10


class Protection(Protocol):
    """Whether quota rules let one workload push away another."""

    def may_preempt(self, preemptor: WorkloadUid, victim: WorkloadUid) -> bool:
        """True, if the cohort's rules allow it."""
        ...


class Placement:
    """Filter, prioritize and preempt, over the books of pods and nodes."""

    def __init__(self, books: Books, protection: Protection) -> None:
        self._books = books
        self._protection = protection

    def concerns(self, question: PodInQuestion) -> bool:
        """Whether the pod is one that waits for quota; all others pass untouched."""
        return bool(question.queue) or question.managed or self._books.has_default_queue(question.namespace)

    def filter(self, asked: PlacementQuestion) -> FilterVerdict:
        """Which of the nodes the pod may use.

        Raises: NotYetSeen, when the pod carries an admission that our watch has not shown yet.
        Cost: one set lookup a name.
        """
        question, names = asked.pod, asked.nodes
        if not self.concerns(question):
            return FilterVerdict(list(names), {}, {})
        pod = self._books.pod(question.uid)
        if pod is not None and pod.node is not None:
            return _only(pod.node, names)
        selector = self._admitted_labels(question, pod)
        if selector is None:
            return FilterVerdict([], {}, dict.fromkeys(names, NOT_ADMITTED))
        allowed = self._books.nodes.with_labels(selector)
        nodes = [name for name in names if name in allowed]
        if len(nodes) == len(names):
            return FilterVerdict(nodes, {}, {})
        refused = [name for name in names if name not in allowed]
        # A node we do not know yet is the scheduler's to judge if the pod itself carries the flavor's labels.
        unknown = {name for name in refused if name not in self._books.nodes}
        if unknown and set(selector) <= set(question.node_selector):
            nodes = [name for name in names if name in allowed or name in unknown]
            refused = [name for name in refused if name not in unknown]
        reasons = {name: NODE_UNKNOWN if name in unknown else WRONG_FLAVOR for name in refused}
        return FilterVerdict(nodes, {}, reasons)

    def _admitted_labels(self, question: PodInQuestion, pod: Pod | None) -> Labels | None:
        """The labels that a node must carry; None if the pod is not admitted."""
        shown = question.admission
        held = pod.admission if pod else None
        # What is being written counts only once the scheduler has seen it: an ungated pod could otherwise be bound
        # before its admission is durable, and the binding would make the write fail.
        if pod is not None and held is None and shown is not None:
            held = self._books.assumed_admission(pod.uid)
        if shown is not None and shown != held and (pod is None or pod.admission is None):
            if read_admission(question.uid, shown) is None:
                return None  # written by somebody else, or for another pod
            raise NotYetSeen(
                f"pod {question.namespace}/{question.name}: its admission has not reached the extender yet"
            )
        admission = read_admission(question.uid, held)
        if pod is None or admission is None:
            return None
        return labels_of(self._books.flavors_of(admission.assignment))

    def prioritize(self, asked: PlacementQuestion) -> list[NodeScore]:
        """Fuller nodes first, so that empty ones stay whole for big pods.

        Units: 0 to 10; the share of the scarcest requested device that would be in use with this pod.
        """
        pod = self._books.pod(asked.pod.uid)
        scarce = _scarce(pod) if pod else None
        if pod is None or scarce is None:
            return []
        resource, amount = scarce
        total_of, used_of = self._books.nodes.total(resource).get, self._books.nodes.used(resource).get
        return [NodeScore(NodeName(name), _score(total_of(name, 0), used_of(name, 0) + amount)) for name in asked.nodes]

    def preempt(self, asked: PreemptionQuestion) -> dict[str, NodeVictims]:
        """The candidates whose victims quota rules allow, unchanged and in their order.

        A node with one protected victim is of no use, since the scheduler needs all of its victims gone: it is left
        out. A node without victims is left out too: the scheduler up to 1.37 takes an empty list as an error.
        """
        question = asked.pod
        if not self.concerns(question):
            return dict(asked.candidates)
        pod = self._books.pod(question.uid)
        if pod is None or self._admitted_labels(question, pod) is None:
            return {}
        return {
            node: victims
            for node, victims in asked.candidates.items()
            if victims.uids and all(self._may_take(pod, uid) for uid in victims.uids)
        }

    def _may_take(self, pod: Pod, victim_uid: str) -> bool:
        victim = self._books.pod(victim_uid)
        if victim is None or victim.deleting:
            return True  # not ours to protect, or leaving already
        return self._protection.may_preempt(self._books.workload_of(pod), self._books.workload_of(victim))


def _score(total: int, used: int) -> int:
    """How full the node would be, from 0 to 10; 0 if it has nothing of the resource."""
    if total <= 0:
        return 0
    return SCORE_MAX if used >= total else SCORE_MAX * used // total


def _only(node: str, names: Sequence[str]) -> FilterVerdict:
    return FilterVerdict(
        [name for name in names if name == node], {}, {name: BOUND_ELSEWHERE for name in names if name != node}
    )


def _scarce(pod: Pod) -> tuple[ResourceName, int] | None:
    """The requested device (a name with a domain), with its amount; None if the pod asks for none."""
    devices = [(resource, amount) for resource, amount in pod.requests if "/" in resource and amount > 0]
    return max(devices, key=lambda device: (device[1], device[0]), default=None)
