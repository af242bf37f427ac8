"""Where every workload is, and which trees have work.

A workload is in one of three places: *charged* to a cluster queue, *in line* in one, or *blocked*, that is kept out of
line by something other than quota. A tree is *awake* while another cycle may change something in it.
Source: ordering specification, sections 1, 4 and 6; quota specification, sections 6 and 8.
"""

from itertools import takewhile

from extender.engine import ledger
from extender.engine.hierarchy import Charge, Hierarchy, Leaf, Tree
from extender.engine.loops import Barred, Kind
from extender.engine.matching import selects
from extender.engine.queues import Pending, Shape
from extender.engine.state import ClusterQueueState, Hold
from extender.model.names import ClusterQueueName, CohortName, FlavorName, LocalQueueKey, Namespace, WorkloadUid
from extender.model.policy import Policy
from extender.model.quota import ClusterQueue, Cohort, Labels, LocalQueue, ResourceFlavor, StopPolicy
from extender.model.reasons import Reason, ReasonCode, reason
from extender.model.workload import PodSet, Workload

_SHAPES_KEPT = 4096
TOUCHED_MAX = 100_000
NAMESPACE_NAME_LABEL = "kubernetes.io/metadata.name"
"""The API server puts it on every namespace."""


class Places:
    """All places. ``awake`` are the trees with work, ``drains`` the workloads that a stopped queue lets go.

    ``touched`` are the workloads that changed since the state was last digested; None: all may have. ``ways_in`` are
    the LocalQueues of each cluster queue, ``flavor_users`` the cluster queues that list a flavor.
    """

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
        self.touched: dict[WorkloadUid, None] | None = None
        self.shapes: dict[tuple[int, tuple[PodSet, ...]], Shape] = {}
        self.flavor_users: dict[FlavorName, dict[ClusterQueueName, None]] = {}
        self.by_local_queue: dict[LocalQueueKey, dict[WorkloadUid, None]] = {}
        self.ways_in: dict[ClusterQueueName, dict[LocalQueueKey, None]] = {}

    def touch(self, uid: WorkloadUid) -> None:
        """*uid* changed. Where nobody digests the state nothing is noted, and not more than is worth it anywhere."""
        if self.touched is not None:
            self.touched[uid] = None
            if len(self.touched) > TOUCHED_MAX:
                self.touched = None

    def enter(self, charge: Charge) -> None:
        """Charge it; a queue that is being drained has it evicted."""
        uid = charge.workload.uid
        self.charges[uid] = charge
        self.touch(uid)
        ledger.charge(charge)
        tree = charge.leaf.tree
        if tree is not None and not charge.assumed:
            tree.excused = True
        if tree is not None and charge.evicted:
            tree.leaving[uid] = charge
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
        self.touch(uid)
        self.drains.pop(uid, None)
        ledger.release(charge)
        if charge.leaf.tree is not None:
            charge.leaf.tree.leaving.pop(uid, None)
        self.wake(charge.leaf)
        self._sweep(ClusterQueueName(charge.leaf.name))

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
        shape = self.shapes.get(key)
        if shape is None:
            if len(self.shapes) >= _SHAPES_KEPT + 2 * len(self.pending):
                self.shapes = {(one.shape.priority, one.shape.pod_sets): one.shape for one in self.pending.values()}
            shape = self.shapes[key] = Shape(*key)
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
        for key in self.ways_in.get(name, ()):
            for uid in self.by_local_queue.get(key, ()):
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
            self._sweep(state.name)

    def _home(self, pending: Pending) -> ClusterQueueState | None:
        return None if pending.cluster_queue is None else self.states.get(pending.cluster_queue)

    def _drop_pending(self, uid: WorkloadUid) -> None:
        pending = self.pending.pop(uid, None)
        if pending is not None:
            self._take_out(pending)

    # -- trees -------------------------------------------------------------------------------------------------

    def rerank(self, charge: Charge) -> None:
        """Its record, or whether it was told to stop, changed."""
        uid = charge.workload.uid
        self.touch(uid)
        charge.evicted = charge.evicting or charge.workload.evicted
        ledger.rerank(charge)
        tree = charge.leaf.tree
        if tree is not None and charge.evicted:
            tree.leaving[uid] = charge
        elif tree is not None:
            tree.leaving.pop(uid, None)

    def take_back(self, charge: Charge) -> None:
        """An assumed admission comes to nothing: the workload waits again."""
        self.release(charge)
        self._wait(charge.workload)

    def copy_indexes(self, other: "Places") -> None:
        """Take over what *other* knows about who belongs where."""
        self.shapes = dict(other.shapes)
        self.flavor_users = {key: dict(users) for key, users in other.flavor_users.items()}
        self.by_local_queue = {key: dict(members) for key, members in other.by_local_queue.items()}
        self.ways_in = {key: dict(ways) for key, ways in other.ways_in.items()}

    def state(self, name: ClusterQueueName) -> ClusterQueueState:
        """The cluster queue *name*, made inactive if nothing is known of it."""
        found = self.states.get(name)
        if found is None:
            found = self.states[name] = ClusterQueueState(name, self.hierarchy.leaf(name))
        return found

    def _sweep(self, name: ClusterQueueName) -> None:
        """A cluster queue that is gone is forgotten when nothing refers to it any more, if that was not done yet."""
        state = self.states.get(name)
        if state is None or name in self.ways_in:
            return
        leaf = state.leaf
        if leaf.spec is None and not leaf.charges and not len(state.pending):
            self.hierarchy.forget_leaf(leaf)
            del self.states[name]

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
        assert tree is not None
        if hold is None:
            tree.holders.pop(state.name, None)
        else:
            tree.holders[state.name] = None

    def waits_for(self, charge: Charge) -> Pending | None:
        """The first workload for which room of *charge* may be held, None if there is none."""
        tree = charge.leaf.tree
        for name in sorted(tree.holders) if tree is not None else ():
            hold = self.states[name].hold
            if hold is not None and charge.uses(hold.usage):
                return hold.pending
        return None

    def drop_hold(self, state: ClusterQueueState) -> None:
        """Nothing is kept for *state* any more: others may have it."""
        self.set_hold(state, None)
        self.wake(state.leaf)

    def population(self, tree: Tree) -> int:
        """How many workloads wait or are in, without those that have to go. Cost: O(cluster queues of *tree*)."""
        waiting = sum(len(self.states[ClusterQueueName(leaf.name)].pending) for leaf in tree.leaves)
        return waiting + sum(len(leaf.charges) for leaf in tree.leaves) - len(tree.leaving)

    def barred(self, tree: Tree, preemptor: Kind) -> Barred | None:
        """Whom *preemptor* may not take because that closes a loop; the graph is forgotten if more workloads came."""
        found = tree.loops.barred(preemptor)
        if found is not None and self.population(tree) > tree.loops.population:
            tree.loops.clear()
            return None
        return found

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
                tree.leaving.update(leaving_of(leaf))
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
        missing = [name for name in flavors_of(spec) if name not in self.flavors]
        if missing:
            return f"FlavorNotFound {', '.join(missing)}: create the ResourceFlavor, or take it out of the ClusterQueue"
        if spec.admission_checks:
            return (
                f"AdmissionCheckNotFound {', '.join(spec.admission_checks)}: admission checks are not supported; "
                "remove spec.admissionChecksStrategy or spec.admissionChecks"
            )
        if cyclic:
            return (
                f"CohortCycle above cohort {spec.cohort}: its parents run in a circle; change the parent of one of them"
            )
        return ""


def flavors_of(spec: ClusterQueue | None) -> list[FlavorName]:
    """The flavors that *spec* lists, each once, in its order."""
    groups = () if spec is None else spec.resource_groups
    return list(dict.fromkeys(flavor.flavor for group in groups for flavor in group.flavors))


def leaving_of(leaf: Leaf) -> dict[WorkloadUid, Charge]:
    """The charges of *leaf* that were told to stop: they are ranked first."""
    return {charge.workload.uid: charge for _, charge in takewhile(lambda ranked: ranked[1].evicted, leaf.ranked)}
