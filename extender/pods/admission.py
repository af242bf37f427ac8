"""The admission as it stands on a pod: one annotation, the only durable state of a decision.

It is bound to the pod's UID. Whoever creates a pod cannot know the UID that the API server will give it, so an
annotation written at creation never counts; afterwards only our service account may write it (the guard policy). It
carries all that a restart needs to charge the same quota again: the whole workload's pod sets, flavors and amounts,
and since when. So one pod of a group is enough to know what its group was given.
"""

from functools import lru_cache

import msgspec

from extender.model.amounts import TimeMs
from extender.model.errors import UNREADABLE
from extender.model.names import ClusterQueueName, PodUid
from extender.model.workload import Admission, PodSetAssignment
from extender.model.written import ANNOTATION_LENGTH_MAX, WrittenPodSet

READ_MAX = 4_096
"""A kilobyte each. Larger groups are read anew, 15 µs a pod, when one of their pods changes."""


class _Written(msgspec.Struct, rename="camel", frozen=True):
    """The JSON of the annotation. ``usage`` is a pod set's total, in canonical units."""

    pod: str
    pod_set: str
    cluster_queue: str
    at_ms: TimeMs
    pod_sets: tuple[WrittenPodSet, ...]


class PodAdmission(msgspec.Struct, frozen=True):
    """What the annotation of one pod says: its workload's admission, and which pod set this pod belongs to."""

    pod_set: str
    admission: Admission

    @property
    def assignment(self) -> PodSetAssignment:
        """The assignment of this pod's own pod set."""
        return next(given for given in self.admission.assignments if given.name == self.pod_set)


_DECODER = msgspec.json.Decoder(_Written)
_ENCODER = msgspec.json.Encoder(order="sorted")


def write_admission(pod: PodUid, pod_set: str, admission: Admission) -> str:
    """The annotation of one pod of *pod_set*."""
    sets = tuple(WrittenPodSet.of(given) for given in admission.assignments)
    return _ENCODER.encode(_Written(pod, pod_set, admission.cluster_queue, admission.at_ms, sets)).decode()


@lru_cache(maxsize=READ_MAX)
def read_admission(pod: PodUid, text: str | None) -> PodAdmission | None:
    """What the annotation *text* of *pod* says.

    None, if there is none, it cannot be read, or it was not written for this pod: such a pod is not admitted.
    Cached: of a group all are asked again whenever one of them changes.
    """
    if text is None or len(text) > ANNOTATION_LENGTH_MAX:
        return None
    try:
        written = _DECODER.decode(text)
    except UNREADABLE:
        return None
    names = [given.name for given in written.pod_sets]
    if written.pod != pod or not written.cluster_queue or names.count(written.pod_set) != 1:
        return None
    assignments = tuple(given.assignment() for given in written.pod_sets)
    return PodAdmission(written.pod_set, Admission(ClusterQueueName(written.cluster_queue), assignments, written.at_ms))
