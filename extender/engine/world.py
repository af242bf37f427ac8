"""What is known: every fact taken in at once, and the places of all workloads that follow from the facts.

A workload is in one of three places: *charged* to a cluster queue, *in line* in one, or *blocked*, that is kept out of
line by something other than quota. Facts may come in any order; what they refer to may be missing for now.
Source: ordering specification, sections 1 and 6; quota specification, sections 6 to 8.
"""

from collections.abc import Iterable

from extender.engine import ledger
from extender.engine.hierarchy import Cell, Charge, Hierarchy, Leaf, Tree
from extender.engine.matching import selects
from extender.engine.queues import Pending, Shape
from extender.engine.state import ClusterQueueState, Hold
from extender.model.events import (
    AdmissionRefused,
    ClusterQueueGone,
    ClusterQueueSeen,
    CohortGone,
    CohortSeen,
    EngineEvent,
    EvictionRefused,
    FlavorGone,
    FlavorSeen,
    LocalQueueGone,
    LocalQueueSeen,
    NamespaceGone,
    NamespaceSeen,
    QuotaEvent,
    WorkloadGone,
    WorkloadSeen,
)
from extender.model.names import (
    ClusterQueueName,
    CohortName,
    FlavorName,
    FlavorResource,
    LocalQueueKey,
    Namespace,
    WorkloadUid,
)
from extender.model.policy import Policy
from extender.model.quota import ClusterQueue, Cohort, Labels, LocalQueue, ResourceFlavor, StopPolicy
from extender.model.reasons import Reason, ReasonCode, reason
from extender.model.workload import Admission, PodSet, Workload

_SHAPES_KEPT = 4096
NAMESPACE_NAME_LABEL = "kubernetes.io/metadata.name"
"""The API server puts it on every namespace."""


class World:
    """All facts and all places. ``awake`` are the trees in which another cycle may change something."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.hierarchy = Hierarchy()
        self.states: dict[ClusterQueueName, ClusterQueueState] = {}
        self.flavors: dict[FlavorName, ResourceFlavor] = {}
        self.cohorts: dict[CohortName, Cohort] = {}
        self.local_queues: dict[LocalQueueKey, LocalQueue] = {}
        self.namespaces: dict[Namespace, Labels] = {}
        self.workloads: dict[WorkloadUid, Workload] = {}
        self.pending: dict[WorkloadUid, Pending] = {}
        self.charges: dict[WorkloadUid, Charge] = {}
        self.awake: dict[Tree, None] = {}
        self.drains: dict[WorkloadUid, None] = {}
        self._shapes: dict[tuple[int, tuple[PodSet, ...]], Shape] = {}
        self._flavor_users: dict[FlavorName, dict[ClusterQueueName, None]] = {}
        self._by_local_queue: dict[LocalQueueKey, dict[WorkloadUid, None]] = {}
        self._ways_in: dict[ClusterQueueName, dict[LocalQueueKey, None]] = {}

    # -- facts -------------------------------------------------------------------------------------------------

    def apply(self, event: EngineEvent) -> None:
        """Take *event* in. Never fails on odd order; to be told twice changes nothing."""
        match event:
            case WorkloadSeen():
                self._workload_seen(event.workload)
            case WorkloadGone():
                self._workload_gone(event.uid)
            case AdmissionRefused():
                self._admission_refused(event.uid)
            case EvictionRefused():
                self._eviction_refused(event.uid)
            case _:
                self._apply_quota(event)

    def _apply_quota(self, event: QuotaEvent) -> None:
        match event:
            case ClusterQueueSeen():
                self._cluster_queue_seen(event.cluster_queue)
            case ClusterQueueGone():
                self._cluster_queue_gone(event.name)
            case CohortSeen():
                self._cohort_seen(event.cohort)
            case CohortGone():
                self._cohort_gone(event.name)
            case FlavorSeen():
                self._flavor_seen(event.flavor)
            case FlavorGone():
                if self.flavors.pop(event.name, None) is not None:
                    self._flavor_changed(event.name)
            case LocalQueueSeen():
                self._local_queue_seen(event.local_queue)
            case LocalQueueGone():
                self._local_queue_gone(event.key)
            case NamespaceSeen():
                self._namespace_changed(event.name, event.labels)
            case NamespaceGone():
                self._namespace_changed(event.name, None)

    def _cluster_queue_seen(self, spec: ClusterQueue) -> None:
        state = self.state(spec.name)
        old = state.leaf.spec
        if old == spec:
            return
        self._index_flavors(spec.name, old, spec)
        self.hierarchy.set_cluster_queue(spec)
        state.renew()
        if old is None or old.namespace_selector != spec.namespace_selector:
            self._place_again(state.name)
        if spec.stop_policy is StopPolicy.HOLD_AND_DRAIN:
            self.drains.update(dict.fromkeys(state.leaf.charges))

    def _cluster_queue_gone(self, name: ClusterQueueName) -> None:
        state = self.states.get(name)
        if state is None or state.leaf.spec is None:
            return
        self._index_flavors(name, state.leaf.spec, None)
        self.hierarchy.drop_cluster_queue(name)
        state.renew()
        self._place_again(name)
        self._sweep(state)

    def _index_flavors(self, user: ClusterQueueName, old: ClusterQueue | None, new: ClusterQueue | None) -> None:
        for name in _flavors_of(old):
            del self._flavor_users[name][user]
            if not self._flavor_users[name]:
                del self._flavor_users[name]
        for name in _flavors_of(new):
            self._flavor_users.setdefault(name, {})[user] = None

    def _cohort_seen(self, spec: Cohort) -> None:
        if self.cohorts.get(spec.name) != spec:
            self.cohorts[spec.name] = spec
            self.hierarchy.set_cohort(spec)

    def _cohort_gone(self, name: CohortName) -> None:
        if self.cohorts.pop(name, None) is not None:
            self.hierarchy.drop_cohort(name)

    def _flavor_seen(self, flavor: ResourceFlavor) -> None:
        if self.flavors.get(flavor.name) != flavor:
            self.flavors[flavor.name] = flavor
            self._flavor_changed(flavor.name)

    def _flavor_changed(self, name: FlavorName) -> None:
        for user in self._flavor_users.get(name, ()):
            self.states[user].renew()
            self.hierarchy.touch(self.states[user].leaf)

    def _local_queue_seen(self, local_queue: LocalQueue) -> None:
        key = LocalQueueKey(local_queue.namespace, local_queue.name)
        old = self.local_queues.get(key)
        if old == local_queue:
            return
        self._unlink(old)
        self.local_queues[key] = local_queue
        self._ways_in.setdefault(local_queue.cluster_queue, {})[key] = None
        self.state(local_queue.cluster_queue)
        members = self._by_local_queue.get(key, {})
        for uid in members:
            self._place_pending(uid)
        if local_queue.stop_policy is StopPolicy.HOLD_AND_DRAIN:
            self.drains.update(dict.fromkeys(uid for uid in members if uid in self.charges))

    def _local_queue_gone(self, key: LocalQueueKey) -> None:
        old = self.local_queues.pop(key, None)
        if old is not None:
            self._unlink(old)
            for uid in self._by_local_queue.get(key, ()):
                self._place_pending(uid)
            self._sweep(self.states[old.cluster_queue])

    def _unlink(self, local_queue: LocalQueue | None) -> None:
        if local_queue is not None:
            ways_in = self._ways_in[local_queue.cluster_queue]
            del ways_in[LocalQueueKey(local_queue.namespace, local_queue.name)]
            if not ways_in:
                del self._ways_in[local_queue.cluster_queue]

    def _namespace_changed(self, name: Namespace, labels: Labels | None) -> None:
        if self.namespaces.get(name) == labels:
            return
        if labels is None:
            del self.namespaces[name]
        else:
            self.namespaces[name] = labels
        for key, members in self._by_local_queue.items():
            if key.namespace == name:
                for uid in members:
                    self._place_pending(uid)

    # -- workloads ---------------------------------------------------------------------------------------------

    def _workload_seen(self, workload: Workload) -> None:
        uid = workload.uid
        old = self.workloads.get(uid)
        self.workloads[uid] = workload
        if old is None or old.queue != workload.queue:
            if old is not None:
                self._forget_member(old)
            self._by_local_queue.setdefault(workload.queue, {})[uid] = None
        charge = self.charges.get(uid)
        if workload.admission is not None:
            self._admission_seen(workload, workload.admission, charge)
        elif charge is None:
            self._wait(workload)
        elif charge.assumed:
            charge.workload = workload
            ledger.rerank(charge)
        else:
            self.release(charge)
            self._wait(workload)

    def _admission_seen(self, workload: Workload, admission: Admission, charge: Charge | None) -> None:
        if charge is not None:
            old = charge.admission
            if (old.cluster_queue, old.assignments) == (admission.cluster_queue, admission.assignments):
                charge.assumed = False
                charge.workload = workload
                charge.admission = admission
                charge.evicted = charge.evicting or workload.evicted
                ledger.rerank(charge)
                return
            evicting, preemptor = charge.evicting, charge.preemptor
            self.release(charge)
        else:
            evicting, preemptor = False, None
        self._drop_pending(workload.uid)
        leaf = self.state(admission.cluster_queue).leaf
        usage = self._usage(leaf, admission)
        made = Charge(workload, admission, leaf, usage, assumed=False)
        made.evicting, made.preemptor = evicting, preemptor
        made.evicted = evicting or workload.evicted
        made.key = made.rank()
        self.enter(made)

    def _usage(self, leaf: Leaf, admission: Admission) -> tuple[tuple[Cell, int], ...]:
        """What *admission* holds, in the cells of *leaf*, which are made if nothing declares them any more."""
        usage: dict[Cell, int] = {}
        for part in admission.assignments:
            amounts = dict(part.usage)
            for resource, flavor in part.flavors:
                fr = FlavorResource(flavor, resource)
                if fr not in leaf.cells:
                    self.hierarchy.touch(leaf)
                cell = leaf.cell(fr)
                usage[cell] = usage.get(cell, 0) + amounts.get(resource, 0)
        return tuple(usage.items())

    def enter(self, charge: Charge) -> None:
        """Charge it; a queue that is being drained has it evicted."""
        uid = charge.workload.uid
        self.charges[uid] = charge
        ledger.charge(charge)
        if self.drained(charge) is not None:
            self.drains[uid] = None

    def drained(self, charge: Charge) -> StopPolicy | LocalQueue | None:
        """The LocalQueue that drains it, HOLD_AND_DRAIN if its cluster queue does, else None."""
        spec = charge.leaf.spec
        if spec is not None and spec.stop_policy is StopPolicy.HOLD_AND_DRAIN:
            return StopPolicy.HOLD_AND_DRAIN
        local_queue = self.local_queues.get(charge.workload.queue)
        if local_queue is not None and local_queue.stop_policy is StopPolicy.HOLD_AND_DRAIN:
            return local_queue
        return None

    def release(self, charge: Charge) -> None:
        """Give its quota back and wake its tree."""
        uid = charge.workload.uid
        del self.charges[uid]
        self.drains.pop(uid, None)
        ledger.release(charge)
        self.wake(charge.leaf)
        self._sweep(self.states[ClusterQueueName(charge.leaf.name)])

    def _workload_gone(self, uid: WorkloadUid) -> None:
        old = self.workloads.pop(uid, None)
        if old is None:
            return
        self._forget_member(old)
        charge = self.charges.get(uid)
        if charge is not None:
            self.release(charge)
        else:
            self._drop_pending(uid)

    def _forget_member(self, workload: Workload) -> None:
        members = self._by_local_queue[workload.queue]
        del members[workload.uid]
        if not members:
            del self._by_local_queue[workload.queue]

    def _admission_refused(self, uid: WorkloadUid) -> None:
        charge = self.charges.get(uid)
        if charge is not None and charge.assumed:
            self.release(charge)
            self._wait(charge.workload)

    def _eviction_refused(self, uid: WorkloadUid) -> None:
        charge = self.charges.get(uid)
        if charge is not None and charge.evicting:
            charge.evicting, charge.preemptor = False, None
            charge.evicted = charge.workload.evicted
            ledger.rerank(charge)
            if self.drained(charge) is not None:
                self.drains[uid] = None
            self.wake(charge.leaf)

    # -- places ------------------------------------------------------------------------------------------------

    def _wait(self, workload: Workload) -> None:
        """Put *workload* where it has to wait; one that waits already moves only if something decisive changed."""
        pending = self.pending.get(workload.uid)
        shape = self._shape(workload)
        if pending is not None:
            old = pending.workload
            pending.workload = workload
            same = pending.shape is shape and old.created_ms == workload.created_ms
            if same and old.queue == workload.queue and old.held == workload.held:
                return
            state = self._home(pending)
            sticky = state is not None and state.pending.sticky is pending
            self._take_out(pending)
            pending.victims = {}
            if not same:
                pending.shape, pending.progress = shape, None
                pending.key = (-workload.priority, workload.created_ms, workload.uid)
            self._place(pending)
            if sticky and pending.bucket is not None and self._home(pending) is state and state is not None:
                state.pending.sticky = pending
            return
        pending = self.pending[workload.uid] = Pending(workload, shape)
        self._place(pending)

    def _shape(self, workload: Workload) -> Shape:
        key = (workload.priority, workload.pod_sets)
        shape = self._shapes.get(key)
        if shape is None:
            if len(self._shapes) >= _SHAPES_KEPT + 2 * len(self.pending):
                self._shapes = {(one.shape.priority, one.shape.pod_sets): one.shape for one in self.pending.values()}
            shape = self._shapes[key] = Shape(*key)
        return shape

    def _place(self, pending: Pending) -> None:
        """Into the line of its cluster queue, or out of it with the reason."""
        workload = pending.workload
        local_queue = self.local_queues.get(workload.queue)
        pending.blocked = self._obstacle(workload, local_queue)
        pending.cluster_queue = None if local_queue is None else local_queue.cluster_queue
        if local_queue is None:
            return
        state = self.states[local_queue.cluster_queue]
        if pending.blocked is not None:
            state.pending.block(pending, pending.blocked)
        elif state.pending.push(pending):
            self.ready(state)
        else:
            tree = state.leaf.tree
            assert tree is not None
            tree.parked[state.name] = None

    def _obstacle(self, workload: Workload, local_queue: LocalQueue | None) -> Reason | None:
        """What other than quota keeps *workload* out of line."""
        if workload.held is not None:
            return workload.held
        if local_queue is None:
            return reason(ReasonCode.QUEUE_NOT_FOUND, queue=workload.queue.name, namespace=workload.queue.namespace)
        if local_queue.stop_policy is not StopPolicy.NONE:
            name = f"LocalQueue {local_queue.namespace}/{local_queue.name}"
            return reason(ReasonCode.STOPPED, object=name, policy=local_queue.stop_policy.value)
        spec = self.states[local_queue.cluster_queue].leaf.spec
        if spec is not None and not selects(spec.namespace_selector, self._labels(workload.queue.namespace)):
            return reason(ReasonCode.NAMESPACE_NOT_ALLOWED, namespace=workload.queue.namespace, cluster_queue=spec.name)
        return None

    def _labels(self, namespace: Namespace) -> dict[str, str]:
        return {NAMESPACE_NAME_LABEL: namespace, **dict(self.namespaces.get(namespace, ()))}

    def _place_again(self, name: ClusterQueueName) -> None:
        for key in self._ways_in.get(name, ()):
            for uid in self._by_local_queue.get(key, ()):
                self._place_pending(uid)

    def _place_pending(self, uid: WorkloadUid) -> None:
        pending = self.pending.get(uid)
        if pending is None:
            return
        local_queue = self.local_queues.get(pending.workload.queue)
        home = None if local_queue is None else local_queue.cluster_queue
        if home != pending.cluster_queue or self._obstacle(pending.workload, local_queue) != pending.blocked:
            self._take_out(pending)
            self._place(pending)

    def _take_out(self, pending: Pending) -> None:
        state = self._home(pending)
        if state is not None:
            state.pending.remove(pending)
            if state.hold is not None and state.hold.pending is pending:
                self.drop_hold(state)
            self._sweep(state)

    def _home(self, pending: Pending) -> ClusterQueueState | None:
        return None if pending.cluster_queue is None else self.states.get(pending.cluster_queue)

    def _drop_pending(self, uid: WorkloadUid) -> None:
        pending = self.pending.pop(uid, None)
        if pending is not None:
            self._take_out(pending)

    # -- trees -------------------------------------------------------------------------------------------------

    def state(self, name: ClusterQueueName) -> ClusterQueueState:
        """The cluster queue *name*, made inactive if nothing is known of it."""
        found = self.states.get(name)
        if found is None:
            found = self.states[name] = ClusterQueueState(name, self.hierarchy.leaf(name))
        return found

    def _sweep(self, state: ClusterQueueState) -> None:
        """A cluster queue that is gone is forgotten when nothing refers to it any more."""
        leaf = state.leaf
        if leaf.spec is None and not leaf.charges and not len(state.pending) and state.name not in self._ways_in:
            self.hierarchy.forget_leaf(leaf)
            del self.states[state.name]

    def ready(self, state: ClusterQueueState) -> None:
        """*state* may have a head."""
        tree = state.leaf.tree
        if tree is not None and not tree.stale and state.leaf.active:
            tree.ready[state.name] = None
            tree.seen.clear()
            self.awake[tree] = None

    def set_hold(self, state: ClusterQueueState, hold: Hold | None) -> None:
        """Keep room for the head of *state*, or none any more."""
        state.hold = hold
        tree = state.leaf.tree
        if tree is not None and hold is not None:
            tree.holders[state.name] = None
        elif tree is not None:
            tree.holders.pop(state.name, None)

    def drop_hold(self, state: ClusterQueueState) -> None:
        """Nothing is kept for *state* any more: others may have it."""
        self.set_hold(state, None)
        self.wake(state.leaf)

    def wake(self, leaf: Leaf) -> None:
        """Something left the tree of *leaf*: everything parked in it may be tried again."""
        tree = leaf.tree
        if tree is None or tree.stale:
            return
        for name in tree.parked:
            state = self.states.get(name)
            if state is not None and state.pending.wake() and state.leaf.active:
                tree.ready[name] = None
        tree.parked.clear()
        tree.seen.clear()
        if tree.ready:
            self.awake[tree] = None

    def settle(self) -> None:
        """Bring numbers up to the edges: every tree that changed is computed anew and woken."""
        if self.hierarchy.settled:
            return
        for tree in self.hierarchy.settle(self._compute):
            for leaf in tree.leaves:
                state = self.states[ClusterQueueName(leaf.name)]
                state.renew()
                state.pending.wake()
                if leaf.active and state.pending.active:
                    tree.ready[state.name] = None
                if state.hold is not None and leaf.active and all(fr in leaf.cells for fr in state.hold.usage):
                    tree.holders[state.name] = None
                else:
                    state.hold = None
            if tree.ready:
                self.awake[tree] = None
        self.awake = {tree: None for tree in self.awake if not tree.stale}

    def _compute(self, tree: Tree) -> None:
        for leaf in tree.leaves:
            state = self.states[ClusterQueueName(leaf.name)]
            state.inactive = self._inactive(leaf, cyclic=tree.cyclic)
            leaf.active = not state.inactive
        ledger.compute(tree)

    def _inactive(self, leaf: Leaf, *, cyclic: bool) -> str:
        """Why *leaf* decides nothing, empty if it does. Follows: quota specification, section 6."""
        spec = leaf.spec
        if spec is None:
            return "it does not exist"
        if spec.deleting:
            return "it is being deleted"
        if spec.misconfigured:
            return spec.misconfigured
        if spec.stop_policy is not StopPolicy.NONE:
            return f"stopPolicy is {spec.stop_policy.value}"
        missing = [name for name in _flavors_of(spec) if name not in self.flavors]
        if missing:
            return f"FlavorNotFound {', '.join(missing)}"
        if spec.admission_checks:
            return f"AdmissionCheckNotFound {', '.join(spec.admission_checks)}"
        if cyclic:
            return f"CohortCycle above cohort {spec.cohort}"
        return ""


def _flavors_of(spec: ClusterQueue | None) -> Iterable[FlavorName]:
    groups = () if spec is None else spec.resource_groups
    return dict.fromkeys(flavor.flavor for group in groups for flavor in group.flavors)
