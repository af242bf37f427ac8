"""Questions of kube-scheduler, as the shell understood them: who the pod is, and the candidates.

Only what a verdict may need is kept of the pod in the request. It is the scheduler's cached copy and may be older or
newer than ours; identity is the UID, never the name. Source: extender protocol, sections 3 and 15.
"""

import msgspec

from extender.model.names import Namespace, PodUid
from extender.model.quota import Labels
from extender.model.verdicts import NodeVictims


class PodInQuestion(msgspec.Struct, frozen=True):
    """The pod that the scheduler wants to place.

    ``managed``: carries our label. ``queue`` is what its annotation or label names, empty if none. ``admission`` is the
    raw annotation, None if there is none. ``node_selector`` is sorted by key. ``unit``: it is part of a queued Job;
    ``unit_admission`` is that annotation, and ``controller`` the UID of what made the pod.
    """

    uid: PodUid
    namespace: Namespace
    name: str
    managed: bool = False
    queue: str = ""
    admission: str | None = None
    node_selector: Labels = ()
    unit: bool = False
    unit_admission: str = ""
    controller: str = ""


class PlacementQuestion(msgspec.Struct, frozen=True):
    """Filter and prioritize: which of these nodes, in the scheduler's order and spelling."""

    pod: PodInQuestion
    nodes: list[str]


class PreemptionQuestion(msgspec.Struct, frozen=True):
    """Preempt: which of these nodes may lose these victims for the pod. Keyed by node name, in the request's order."""

    pod: PodInQuestion
    candidates: dict[str, NodeVictims]
