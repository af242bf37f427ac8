"""What is known: every fact is taken in at once, in any order; what it refers to may be missing for now.

Source: ordering specification, section 6; quota specification, sections 2, 7 and 8.
"""

from extender.engine.hierarchy import Cell, Charge, Leaf
from extender.engine.places import Places, flavors_of
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
from extender.model.quota import ClusterQueue, Cohort, Labels, LocalQueue, ResourceFlavor, StopPolicy
from extender.model.workload import Admission, Workload


class World(Places):
    """All facts."""

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
                self.stays(event.uid)
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
            case _:
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
        self._sweep(name)

    def _index_flavors(self, user: ClusterQueueName, old: ClusterQueue | None, new: ClusterQueue | None) -> None:
        for name in flavors_of(old):
            del self.flavor_users[name][user]
            if not self.flavor_users[name]:
                del self.flavor_users[name]
        for name in flavors_of(new):
            self.flavor_users.setdefault(name, {})[user] = None

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
        for user in self.flavor_users.get(name, ()):
            self.states[user].renew()
            self.hierarchy.touch(self.states[user].leaf)

    def _local_queue_seen(self, local_queue: LocalQueue) -> None:
        key = LocalQueueKey(local_queue.namespace, local_queue.name)
        old = self.local_queues.get(key)
        if old == local_queue:
            return
        self._unlink(old)
        self.local_queues[key] = local_queue
        self.ways_in.setdefault(local_queue.cluster_queue, {})[key] = None
        self.state(local_queue.cluster_queue)
        members = self.by_local_queue.get(key, {})
        for uid in members:
            self._place_pending(uid)
        if old is not None:
            self._sweep(old.cluster_queue)
        if local_queue.stop_policy is StopPolicy.HOLD_AND_DRAIN:
            self.drains.update(dict.fromkeys(uid for uid in members if uid in self.charges))

    def _local_queue_gone(self, key: LocalQueueKey) -> None:
        old = self.local_queues.pop(key, None)
        if old is not None:
            self._unlink(old)
            for uid in self.by_local_queue.get(key, ()):
                self._place_pending(uid)
            self._sweep(old.cluster_queue)

    def _unlink(self, local_queue: LocalQueue | None) -> None:
        if local_queue is not None:
            ways_in = self.ways_in[local_queue.cluster_queue]
            del ways_in[LocalQueueKey(local_queue.namespace, local_queue.name)]
            if not ways_in:
                del self.ways_in[local_queue.cluster_queue]

    def _namespace_changed(self, name: Namespace, labels: Labels | None) -> None:
        if self.namespaces.get(name) == labels:
            return
        if labels is None:
            del self.namespaces[name]
        else:
            self.namespaces[name] = labels
        for key, members in self.by_local_queue.items():
            if key.namespace == name:
                for uid in members:
                    self._place_pending(uid)

    def _workload_seen(self, workload: Workload) -> None:
        uid = workload.uid
        old = self.workloads.get(uid)
        self.workloads[uid] = workload
        self.touch(uid)
        if old is None or old.queue != workload.queue:
            if old is not None:
                self._forget_member(old)
            self.by_local_queue.setdefault(workload.queue, {})[uid] = None
        charge = self.charges.get(uid)
        if workload.admission is not None:
            self._admission_seen(workload, workload.admission, charge)
        elif charge is None:
            self._wait(workload)
        elif charge.assumed:
            charge.workload = workload
            self.rerank(charge)
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
                cheaper = workload.priority < charge.key[1]
                self.rerank(charge)
                if cheaper:  # somebody may take it now
                    self.wake(charge.leaf)
                return
            evicting, preemptor = charge.evicting, charge.preemptor
            self._ends(charge)
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

    def _workload_gone(self, uid: WorkloadUid) -> None:
        old = self.workloads.pop(uid, None)
        if old is None:
            return
        self.touch(uid)
        self._forget_member(old)
        charge = self.charges.get(uid)
        if charge is not None:
            self._ends(charge)
            self.release(charge)
        else:
            self._drop_pending(uid)

    def _ends(self, charge: Charge) -> None:
        """It gives quota back; if nobody told it to, preemption starts from a new situation."""
        tree = charge.leaf.tree
        if tree is not None and not charge.evicted:
            tree.loops.clear()

    def _forget_member(self, workload: Workload) -> None:
        members = self.by_local_queue[workload.queue]
        del members[workload.uid]
        if not members:
            del self.by_local_queue[workload.queue]

    def _admission_refused(self, uid: WorkloadUid) -> None:
        charge = self.charges.get(uid)
        if charge is not None and charge.assumed:
            self.take_back(charge)

    def stays(self, uid: WorkloadUid) -> None:
        """It is not told to stop any more, and may be chosen again."""
        charge = self.charges.get(uid)
        if charge is not None and charge.evicting:
            charge.evicting, charge.preemptor = False, None
            self.rerank(charge)
            if self.drained(charge) is not None:
                self.drains[uid] = None
            self.wake(charge.leaf)
