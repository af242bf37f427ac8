"""What each LocalQueue holds, counted as it changes: looking at a queue must not cost a walk over its workloads."""

import msgspec

from extender.model.names import FlavorResource, LocalQueueKey, WorkloadUid
from extender.model.workload import Admission, Workload


class Count(msgspec.Struct):
    """The workloads of one LocalQueue: how many wait, how many hold quota, and how much of what."""

    pending: int = 0
    reserving: int = 0
    usage: dict[FlavorResource, int] = {}


class Tally:
    """All LocalQueues that something belongs to."""

    def __init__(self) -> None:
        self._counts: dict[LocalQueueKey, Count] = {}
        self._known: dict[WorkloadUid, tuple[LocalQueueKey, Admission | None]] = {}

    def of(self, queue: LocalQueueKey) -> Count:
        """The count of *queue*, to be looked at only."""
        return self._counts.get(queue) or Count()

    def known(self) -> list[WorkloadUid]:
        """All workloads."""
        return list(self._known)

    def waits(self, uid: WorkloadUid) -> bool:
        """Whether that workload is there and holds nothing."""
        found = self._known.get(uid)
        return found is not None and found[1] is None

    def note(self, uid: WorkloadUid, workload: Workload | None, admission: Admission | None) -> LocalQueueKey | None:
        """*workload* (None: gone) holds *admission* from now on; the LocalQueue whose count changed, if one did."""
        now = None if workload is None else (workload.queue, admission)
        before = self._known.get(uid)
        if before == now:
            return None
        if before is not None:
            self._add(*before, sign=-1)
            del self._known[uid]
        if now is not None:
            self._add(*now, sign=1)
            self._known[uid] = now
        return now[0] if now else before[0] if before else None

    def _add(self, queue: LocalQueueKey, admission: Admission | None, *, sign: int) -> None:
        count = self._counts.setdefault(queue, Count())
        if admission is None:
            count.pending += sign
        else:
            count.reserving += sign
            for given in admission.assignments:
                amounts = dict(given.usage)
                for resource, flavor in given.flavors:
                    fr = FlavorResource(flavor, resource)
                    count.usage[fr] = count.usage.get(fr, 0) + sign * amounts.get(resource, 0)
        if not (count.pending or count.reserving):
            del self._counts[queue]
