"""What must hold: the invariants of the design, worked out from the API server's truth and from plain formulas."""

from typing import TYPE_CHECKING, TypeVar

import msgspec

from extender.model.effects import Admit, Evict
from extender.model.names import ClusterQueueName, FlavorName, FlavorResource, NodeName, WorkloadUid
from extender.model.pods import Node, Pod
from extender.model.quota import ClusterQueue, Cohort, LocalQueue, QueueingStrategy, ResourceFlavor, StopPolicy
from extender.model.workload import PodSet
from tests.sim.api import CONFIG, Api, written_for
from tests.sim.holdings import Holding, by_workload, holdings, uid_of
from tests.sim.plain import Node as TreeNode
from tests.sim.plain import PlainQuota, active, choices, queue_usage, sum_by_queue
from tests.sim.replica import Replica

if TYPE_CHECKING:
    from tests.sim.story import Story

Record = TypeVar("Record", bound=msgspec.Struct)
Objects = dict[str, dict[object, object]]


def replace(record: Record, **changes: object) -> Record:
    """A record with some fields changed."""
    return msgspec.structs.replace(record, **changes)


def quota_of(objects: Objects, held: dict[str, Holding]) -> PlainQuota:
    """The plain model of these objects, with these holdings in use."""
    return PlainQuota(
        [cohort for cohort in objects["cohort"].values() if isinstance(cohort, Cohort)],
        [queue for queue in objects["queue"].values() if isinstance(queue, ClusterQueue)],
        sum_by_queue((holding.queue, holding.amounts) for holding in held.values()),
    )


def flavors_of(objects: Objects) -> dict[FlavorName, ResourceFlavor]:
    """The flavors by name."""
    return {flavor.name: flavor for flavor in objects["flavor"].values() if isinstance(flavor, ResourceFlavor)}


class Audit:
    """Watches one pass: every decision must be right by what its replica has been told."""

    def __init__(self, replica: Replica) -> None:
        self.objects: Objects = {kind: stream.seen for kind, stream in replica.streams.items()}
        self.pods = by_workload(replica.members())
        self.held = holdings(replica.members(), replica.in_flight())
        for uid in [uid for uid in replica.evicting if uid not in self.held]:
            del replica.evicting[uid]  # it has left, and may have come back since
        replica.stays &= set(replica.evicting)
        self.evicted: list[tuple[WorkloadUid, WorkloadUid]] = []
        self.leaving = {
            uid
            for uid, members in self.pods.items()
            if uid in self.held and all(pod.deleting for pod in members if not pod.gated and not pod.ended)
        } | set(replica.evicting)

    def admit(self, admit: Admit) -> None:
        """An admission must fit, victims that have not left counted in."""
        name = admit.admission.cluster_queue
        amounts = queue_usage(
            (resource, dict(given.flavors)[resource], amount)
            for given in admit.admission.assignments
            for resource, amount in given.usage
        )
        assert admit.uid not in self.held, f"{admit.uid} is admitted twice"
        assert admit.uid in self.pods, f"{admit.uid} does not exist"
        quota = quota_of(self.objects, self.held)
        queue = quota.queues.get(name)
        assert queue is not None, f"{admit.uid} is admitted to {name}, which does not exist"
        assert active(queue, flavors_of(self.objects)), f"{admit.uid} is admitted to {name}, which is not active"
        assert quota.fits(name, amounts), f"{admit.uid} does not fit in {name}: {amounts}"
        self.held[admit.uid] = Holding(name, amounts)

    def evict(self, evict: Evict, replica: Replica) -> None:
        """A victim must hold something, and must not be told twice unless its eviction was refused."""
        assert evict.uid in self.held, f"{evict.uid} is evicted but holds nothing"
        again = evict.uid in replica.evicting and evict.uid not in replica.stays
        assert not again, f"{evict.uid} is evicted again, for {evict.preemptor}"
        replica.evicting[evict.uid] = evict.preemptor
        replica.stays.discard(evict.uid)
        self.leaving.add(evict.uid)
        if evict.preemptor is not None:
            assert evict.preemptor not in self.held, f"{evict.preemptor} preempts, but is admitted"
            self.evicted.append((evict.uid, evict.preemptor))

    def close(self) -> None:
        """Every preemptor must fit once all that leave have left."""
        if not self.evicted:
            return
        quota = quota_of(self.objects, {uid: held for uid, held in self.held.items() if uid not in self.leaving})
        for preemptor in dict.fromkeys(preemptor for _, preemptor in self.evicted if preemptor not in self.held):
            members = self.pods[preemptor]
            assert fits_somehow(quota, self.objects, members), f"{preemptor} does not fit after its preemption"


def pod_sets(members: list[Pod]) -> list[PodSet]:
    """The pod sets of a waiting workload, at their least count."""
    waiting = [pod for pod in members if not pod.ended and not pod.deleting]
    first = waiting[0]
    succeeded = sum(pod.phase == "Succeeded" for pod in members)
    places = min(len(waiting), first.group_total - succeeded) if first.group else len(waiting)
    count = first.group_min if 0 < first.group_min < places else places
    return [PodSet("all", count, first.requests, node_selector=first.node_selector, tolerations=first.tolerations)]


def cluster_queue_of(objects: Objects, pod: Pod) -> ClusterQueue | None:
    """The ClusterQueue that a pod waits in, None if there is no open way to one."""
    for local in objects["local"].values():
        if isinstance(local, LocalQueue) and local.name == pod.queue and local.namespace == pod.namespace:
            queue = objects["queue"].get(local.cluster_queue)
            if local.stop_policy == StopPolicy.NONE and isinstance(queue, ClusterQueue):
                return queue
    return None


def fits_somehow(quota: PlainQuota, objects: Objects, members: list[Pod]) -> bool:
    """Whether any choice of flavors would do."""
    queue = cluster_queue_of(objects, members[0])
    flavors = flavors_of(objects)
    if queue is None or not active(queue, flavors):
        return False
    return any(quota.fits(queue.name, amounts) for amounts in choices(queue, pod_sets(members), flavors))


class Tolerance:
    """How much over-admission is the administrators' doing, not ours: it may only shrink.

    ``late``: a write that outlived its sender's lease has arrived, and the leader may not have seen it yet.
    """

    def __init__(self) -> None:
        self.excess: dict[tuple[TreeNode, FlavorResource], int] = {}
        self.touched = 0
        self.late = False

    def check(self, story: "Story") -> None:
        """Compare with the truth: what pods carry, and what is being written to them.

        What is too much may come back for as long as the leader has not seen it go: it goes on writing to the others
        of a group of which pods have ended.
        """
        flying = {uid: text for replica in story.replicas for uid, text in replica.writing(zombies=False).items()}
        members = story.api.members()
        held = holdings(members, flying)
        excess = quota_of(story.api.objects, held).excess()
        behind = story.leader is None or story.leader.lag(CONFIG) > 0
        if self.late and story.leader is not None and story.leader.lag(("pod",)) == 0:
            self.late = False
            behind = True
        if not (behind or self.late or self.touched != story.api.touched):
            for (node, fr), amount in excess.items():
                allowed = self.excess.get((node, fr), 0)
                assert amount <= allowed, f"over-admission of {amount - allowed} {fr} at {node}"
        self.excess = excess
        if story.leader is not None:
            counted = holdings(story.leader.members(), story.leader.in_flight())
            for uid in by_workload([pod for pod in members if not pod.ended]).keys() & counted.keys():
                held[uid] = max(held.get(uid, counted[uid]), counted[uid], key=lambda one: sum(one.amounts.values()))
            seen = quota_of(story.api.objects, held).excess()
            self.excess = {key: max(excess.get(key, 0), seen.get(key, 0)) for key in excess | seen}
        self.touched = story.api.touched


def nothing_runs_without_admission(api: Api) -> None:
    """No pod of ours has a node without an admission that was written for it."""
    for pod in api.pods.values():
        if pod.node is not None:
            assert written_for(pod) is not None, f"{pod.name} runs without an admission"
            assert not pod.gated, f"{pod.name} runs behind its gate"


def runs_where_admitted(api: Api, replica: Replica, pod: Pod, node: NodeName) -> None:
    """The node carries the labels of every flavor that the pod was given (of those that the replica knows)."""
    written = written_for(pod)
    assert written is not None, f"{pod.name} got a node without an admission"
    record = api.objects["node"][node]
    assert isinstance(record, Node)
    given = next(part for part in written["podSets"] if part["name"] == written["podSet"])
    for name in given["flavors"].values():
        flavor = replica.books.flavors.get(name)
        labels = flavor.node_labels if flavor else ()
        assert set(labels) <= set(record.labels), f"{pod.name} was admitted to {name} but runs on {node}"


def engine_is_sound(replica: Replica) -> None:
    """What the engine keeps is what it works out anew."""
    problems = list(replica.engine.check())
    assert not problems, f"engine of {replica.name}: {problems}"


def every_waiting_workload_has_a_reason(replica: Replica) -> None:
    """After a pass that ended, every workload that waits can say why, with its numbers filled in."""
    assert not replica.engine.has_work, "a pass ended with work left"
    pods = replica.members()
    held = holdings(pods, replica.in_flight())
    for uid, members in by_workload([pod for pod in pods if pod.managed]).items():
        if uid in held or all(pod.ended for pod in members):
            continue
        why = replica.engine.reason_of(WorkloadUid(uid))
        assert why is not None, f"{uid} waits without a reason"
        assert why.sentence(), f"{uid} waits for nothing that can be said"


def groups_are_whole(api: Api) -> None:
    """Every group runs with all the pods that its latest admission gave it, or with none.

    A pod whose gate was removed by hand keeps its place and never runs, until somebody deletes it. The place of one
    that succeeded and was deleted is filled again after a restart: nothing remembers it then.
    """
    held = holdings(api.members(), {})
    for uid, members in by_workload([pod for pod in api.members() if pod.group]).items():
        admitted = [(pod, text) for pod in members if (text := written_for(pod)) is not None]
        if uid not in held:
            running = [pod.name for pod, _ in admitted if not pod.ended]
            assert not running, f"{uid} holds nothing but {running} run"
            continue
        newest = max(text["atMs"] for _, text in admitted)
        given = next(text for _, text in admitted if text["atMs"] == newest)
        want = sum(part["count"] for part in given["podSets"])
        running = [
            pod.name for pod, text in admitted if text["atMs"] == newest and pod.phase in ("Running", "Succeeded")
        ]
        forgotten = sum(uid_of(pod) == uid for pod in api.finished.values())
        tampered = sum(not (pod.gated or pod.ended or written_for(pod)) for pod in members)
        assert want - tampered <= len(running) <= want + forgotten, (
            f"{uid} was admitted with {want} pods, but {running} run"
        )


def nothing_that_fits_waits(api: Api, leader: Replica) -> None:
    """What fits has got in, where nothing but quota could keep it out.

    A blocked head of a StrictFIFO queue may keep others waiting, in its own queue and, by its reservation, in its tree.
    """
    held = holdings(leader.members(), leader.in_flight())
    quota = quota_of(api.objects, held)
    waiting: dict[str, list[Pod]] = {}
    for uid, members in by_workload([pod for pod in leader.members() if pod.managed]).items():
        live = [pod for pod in members if not pod.ended]
        workload = leader.engine.workload(WorkloadUid(uid))
        if live and uid not in held and workload is not None and workload.held is None:
            waiting[uid] = members
    strict = {
        quota.root(queue.name)
        for members in waiting.values()
        if (queue := cluster_queue_of(api.objects, members[0])) and queue.strategy == QueueingStrategy.STRICT_FIFO
    }
    for uid, members in waiting.items():
        queue = cluster_queue_of(api.objects, members[0])
        if queue is not None and quota.root(queue.name) not in strict:
            reason = leader.engine.reason_of(WorkloadUid(uid))
            assert not fits_somehow(quota, api.objects, members), f"{uid} waits in {queue.name} but fits: {reason}"


__all__ = ["CONFIG", "ClusterQueueName"]
