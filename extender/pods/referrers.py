"""Which pods refer to something else by its name: news of it costs those pods, and not a look at all there are."""

from extender.model.names import Namespace, PodUid
from extender.model.pods import Pod

Referent = tuple[str, ...]
"""A kind and what names one of that kind."""


def priority_class(name: str) -> Referent:
    """A WorkloadPriorityClass."""
    return "WorkloadPriorityClass", name


def pod_group(namespace: Namespace, name: str) -> Referent:
    """A PodGroup."""
    return "PodGroup", namespace, name


def owner(uid: str) -> Referent:
    """What made the pod: a StatefulSet, say."""
    return "owner", uid


class Referrers:
    """The pods behind each name."""

    def __init__(self) -> None:
        self._pods: dict[Referent, dict[PodUid, None]] = {}

    def of(self, referent: Referent) -> list[PodUid]:
        """The pods that refer to it, those first that have done so for longest."""
        return list(self._pods.get(referent, ()))

    def replace(self, uid: PodUid, old: Pod | None, new: Pod | None) -> None:
        """The pod of that UID is *new* and was *old*; None: it is gone, it was not there."""
        before, now = _named_by(old), _named_by(new)
        if before == now:
            return
        for referent in before:
            pods = self._pods[referent]
            del pods[uid]
            if not pods:
                del self._pods[referent]
        for referent in now:
            self._pods.setdefault(referent, {})[uid] = None


def _named_by(pod: Pod | None) -> tuple[Referent, ...]:
    if pod is None:
        return ()
    named: tuple[Referent, ...] = (priority_class(pod.priority_class),) if pod.priority_class else ()
    if pod.pod_group:
        named += (pod_group(pod.namespace, pod.pod_group),)
    if pod.owner is not None:
        named += (owner(pod.owner.uid),)
    return named
