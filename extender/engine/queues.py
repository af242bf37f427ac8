"""What waits in one cluster queue: its order, its head, and what is parked until something changes.

Workloads of one *shape* (same priority, same pod sets) share a bucket, because they share a verdict: if one does not
fit, none does. So parking and waking cost O(1) per shape, however many workloads have it. In a bucket the older goes
first; between buckets the priority decides, then age, then UID. One workload, the *sticky* preemptor, goes before all
of its queue. Source: ordering specification, sections 1, 4 and 5.6.
"""

from bisect import bisect_left
from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from extender.engine.hierarchy import Leaf
from extender.model.names import ClusterQueueName, WorkloadUid
from extender.model.reasons import Reason
from extender.model.workload import PodSet, Workload

STALE_MAX = 64
"""A heap that is longer, and twice as long as what is in it, is made anew."""
Progress = tuple[tuple[int, ...], ...]
"""Per pod set and resource group, the flavor at which the scan stopped; −1: there was none after it."""
OrderKey = tuple[int, int, WorkloadUid]


class Shape:
    """What decides a verdict: priority and pod sets. One object per distinct value, so it is compared by identity."""

    __slots__ = ("digest", "pod_sets", "priority")

    def __init__(self, priority: int, pod_sets: tuple[PodSet, ...]) -> None:
        self.digest: bytes | None = None
        self.priority = priority
        self.pod_sets = pod_sets


class Pending:
    """A workload that waits.

    ``bucket`` is None while something outside of quota keeps it out (``blocked`` says what). ``progress`` is where its
    flavor scan goes on, recorded in cycle ``progress_cycle`` at ``progress_generation`` of its leaf. ``victims`` are
    those whose leaving it waits for, with the leaf they leave.
    """

    __slots__ = (
        "blocked",
        "bucket",
        "cluster_queue",
        "key",
        "progress",
        "progress_cycle",
        "progress_generation",
        "shape",
        "victims",
        "workload",
    )

    def __init__(self, workload: Workload, shape: Shape) -> None:
        self.workload = workload
        self.shape = shape
        self.key: OrderKey = (-workload.priority, workload.created_ms, workload.uid)
        self.cluster_queue: ClusterQueueName | None = None
        self.bucket: Bucket | None = None
        self.blocked: Reason | None = None
        self.progress: Progress | None = None
        self.progress_cycle = 0
        self.progress_generation = 0
        self.victims: dict[WorkloadUid, Leaf] = {}


class Bucket:
    """The workloads of one shape. ``parked``: none of them is tried before the tree changes."""

    __slots__ = ("entry", "heap", "members", "parked", "shape")

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.heap: list[OrderKey] = []
        self.members: dict[WorkloadUid, Pending] = {}
        self.parked = False
        self.entry: OrderKey | None = None

    def top(self) -> Pending:
        """Its first workload; a bucket in use has one."""
        heap = self.heap
        while True:
            pending = self.members.get(heap[0][2])
            if pending is not None and pending.key is heap[0]:
                return pending
            heappop(heap)


class PendingQueue:
    """All that waits in one cluster queue."""

    __slots__ = ("_heap", "_order", "_sequence", "active", "blocked", "buckets", "parked", "sticky")

    def __init__(self) -> None:
        self.buckets: dict[Shape, Bucket] = {}
        self.blocked: dict[WorkloadUid, Pending] = {}
        self.sticky: Pending | None = None
        self.active = 0
        self.parked = 0
        self._heap: list[tuple[OrderKey, int, Bucket]] = []
        self._sequence = 0
        self._order: list[OrderKey] | None = None

    def __len__(self) -> int:
        return self.active + self.parked + len(self.blocked)

    def push(self, pending: Pending) -> bool:
        """Put *pending* in line; False if it is parked at once, because its shape was tried in vain."""
        bucket = self.buckets.get(pending.shape)
        if bucket is None:
            bucket = self.buckets[pending.shape] = Bucket(pending.shape)
        key = pending.key
        pending.bucket = bucket
        bucket.members[key[2]] = pending
        heappush(bucket.heap, key)
        self._order = None
        if bucket.parked:
            self.parked += 1
            return False
        self.active += 1
        if bucket.entry is None or key < bucket.entry:
            self._enter(bucket, key)
        return True

    def remove(self, pending: Pending) -> None:
        """Take *pending* out, wherever it stands."""
        bucket = pending.bucket
        uid = pending.key[2]
        self._order = None
        if self.sticky is pending:
            self.sticky = None
        if bucket is None:
            self.blocked.pop(uid, None)
            return
        pending.bucket = None
        del bucket.members[uid]
        if bucket.parked:
            self.parked -= 1
        else:
            self.active -= 1
        if not bucket.members:
            del self.buckets[bucket.shape]
            bucket.entry = None
        elif len(bucket.heap) > STALE_MAX and len(bucket.heap) > 2 * len(bucket.members):
            bucket.heap = [member.key for member in bucket.members.values()]
            heapify(bucket.heap)

    def block(self, pending: Pending, reason: Reason) -> None:
        """Keep *pending* out of line for *reason*; it must not stand in line."""
        pending.blocked = reason
        self.blocked[pending.key[2]] = pending

    def head(self) -> Pending | None:
        """The first workload that may be tried, None if there is none. Cost: O(1), O(log shapes) after a change."""
        sticky = self.sticky
        if sticky is not None and sticky.bucket is not None and not sticky.bucket.parked:
            return sticky
        heap = self._heap
        while heap:
            key, _, bucket = heap[0]
            if bucket.entry is not key:
                heappop(heap)
                continue
            if bucket.parked:
                bucket.entry = None
                heappop(heap)
                continue
            top = bucket.top()
            if top.key is key:
                return top
            heappop(heap)
            self._enter(bucket, top.key)
        return None

    def park(self, bucket: Bucket) -> None:
        """No workload of this shape is tried until the tree changes."""
        bucket.parked = True
        self.active -= len(bucket.members)
        self.parked += len(bucket.members)

    def wake(self) -> bool:
        """Everything parked may be tried again. True if there was something. Cost: O(shapes)."""
        if not self.parked:
            return False
        for bucket in self.buckets.values():
            if bucket.parked:
                bucket.parked = False
                self._enter(bucket, bucket.top().key)
        self.active += self.parked
        self.parked = 0
        return True

    def adopt(self, bucket: Bucket, *, parked: bool) -> None:
        """Take over a filled *bucket* whose shape is not in this queue yet."""
        self.buckets[bucket.shape] = bucket
        bucket.heap = sorted(pending.key for pending in bucket.members.values())
        bucket.parked = parked
        self._order = None
        if parked:
            self.parked += len(bucket.members)
        else:
            self.active += len(bucket.members)
            self._enter(bucket, bucket.heap[0])

    def _enter(self, bucket: Bucket, key: OrderKey) -> None:
        bucket.entry = key
        self._sequence += 1
        heap = self._heap
        heappush(heap, (key, self._sequence, bucket))
        if len(heap) > STALE_MAX and len(heap) > 2 * len(self.buckets):
            # Whoever runs no passes takes no heads, and would keep the entries of all buckets that ever were.
            heap[:] = [entry for entry in heap if entry[2].entry is entry[0]]
            heapify(heap)

    def in_order(self) -> Iterator[Pending]:
        """All that stand in line, parked ones included, the sticky one first."""
        members = {uid: pending for bucket in self.buckets.values() for uid, pending in bucket.members.items()}
        if self.sticky is not None:
            yield self.sticky
        for key in self._keys():
            if members[key[2]] is not self.sticky:
                yield members[key[2]]

    def position(self, pending: Pending) -> int:
        """Its place in line, from 1. Cost: O(log n); O(n log n) for the first question after a change."""
        sticky = self.sticky
        if pending is sticky:
            return 1
        place = bisect_left(self._keys(), pending.key) + 1
        return place + 1 if sticky is not None and sticky.key > pending.key else place

    def _keys(self) -> list[OrderKey]:
        if self._order is None:
            self._order = sorted(pending.key for bucket in self.buckets.values() for pending in bucket.members.values())
        return self._order
