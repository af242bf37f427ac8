"""The front door: facts in, passes of cycles, verdicts out. Holds the state and drives the cycles; decides nothing."""

from collections.abc import Iterator
from functools import partial

from extender.engine import explain, views
from extender.engine.check import spot_check, violations
from extender.engine.cycle import Cycle
from extender.engine.digest import Digest
from extender.engine.entry import CycleReport, Entry, Outcome
from extender.engine.fork import fork
from extender.engine.hierarchy import Charge, Tree
from extender.engine.loops import kind_of
from extender.engine.passes import PassLog
from extender.engine.preemption.candidates import Victim
from extender.engine.promises import Promises
from extender.engine.protection import may_preempt
from extender.engine.queues import Pending
from extender.engine.state import ClusterQueueState, Hold
from extender.engine.world import World
from extender.model.effects import Admit, Evict, EvictionReason
from extender.model.events import EngineEvent
from extender.model.names import ClusterQueueName, CohortName, WorkloadUid
from extender.model.policy import Policy
from extender.model.quota import LocalQueue
from extender.model.reasons import Reason, ReasonCode, reason
from extender.model.verdicts import PassResult
from extender.model.workload import Admission, Workload

CYCLES_MAX = 100_000
"""A pass never runs longer; what is left is done by the next one."""
NOMINATED_PER_STEP = 20
"""So many heads of a tree are assessed in half a millisecond or so."""


class Engine:
    """Decides on quota. Facts come in by ``apply``, decisions go out by ``run_pass``."""

    def __init__(self, policy: Policy) -> None:
        self._world = World(policy)
        self._digest = Digest()
        self._cycle = 0

    @property
    def policy(self) -> Policy:
        """How it decides."""
        return self._world.policy

    def apply(self, event: EngineEvent) -> None:
        """Take a fact in at once. Never fails on odd order; to be told twice changes nothing."""
        self._world.apply(event)

    @property
    def has_work(self) -> bool:
        """Whether a pass could change anything."""
        world = self._world
        return bool(world.awake) or bool(world.drains) or not world.hierarchy.settled

    def run_pass(self, now_ms: int) -> PassResult:
        """Run cycles until nothing changes any more. A pass with nothing to do costs nothing."""
        *_, result = self.pass_in_steps(now_ms)
        assert result is not None
        return result

    def pass_in_steps(self, now_ms: int) -> Iterator[PassResult | None]:
        """``run_pass`` in steps, the result last: some heads of a tree assessed, or its cycle ended.

        Between two steps questions are answered as the state is then. Facts wait until the end.
        """
        log = PassLog(now_ms)
        cycles = 0
        while (self.has_work or (log.doubt and self._displaced(log))) and cycles < CYCLES_MAX:
            cycles += 1
            for _ in self._one_cycle(log):
                yield None
        waiting = tuple([uid for uid in log.looked if uid in self._world.pending])
        yield PassResult(log.effects(), waiting, cycles, taken_back=tuple(log.taken_back))

    def cycle(self, now_ms: int) -> CycleReport:
        """One cycle with a full report: what the oracle's runner compares."""
        report = CycleReport(heads={}, order={}, admitted=[], preempted=[], pending={})
        for _ in self._one_cycle(PassLog(now_ms, report)):
            pass
        return report

    def _one_cycle(self, log: PassLog) -> Iterator[None]:
        world = self._world
        world.settle()
        if world.drains:
            self._drain(log)
        self._cycle += 1
        awake = world.awake
        for tree in list(awake) if len(awake) < 2 else sorted(awake, key=lambda tree: tree.rank):
            yield from self._tree_cycle(tree, log)
            yield

    def _displaced(self, log: PassLog) -> bool:
        """Whose preemptor was displaced goes for the one that now waits for its room, or stays; True if any stays."""
        world, log.doubt = self._world, False
        if not self.policy.hold_for_preemptor:
            return False
        holding = {state.hold.pending.key[2] for state in world.states.values() if state.hold is not None}
        stays = False
        for uid, preemptor in log.preempted():
            if preemptor in world.charges or preemptor in holding:
                continue
            charge = world.charges[uid]
            heir = world.waits_for(charge)
            if heir is not None:
                charge.preemptor = heir.key[2]
                assert heir.cluster_queue is not None
                log.hand_over(uid, heir.key[2], _makes_room(heir.workload, heir.cluster_queue))
            else:
                stays = True
                log.spare(uid)
                world.stays(uid)
        return stays

    def _drain(self, log: PassLog) -> None:
        """Tell the workloads of drained queues to stop, each once."""
        world = self._world
        drains, world.drains = sorted(world.drains), {}
        for uid in drains:
            charge = world.charges.get(uid)
            source = None if charge is None or charge.evicted else world.drained(charge)
            if charge is None or source is None:
                continue
            if isinstance(source, LocalQueue):
                why, text = EvictionReason.LOCAL_QUEUE_STOPPED, f"LocalQueue {source.namespace}/{source.name}"
            else:
                why, text = EvictionReason.CLUSTER_QUEUE_STOPPED, f"ClusterQueue {charge.leaf.name}"
            self._evict(charge, None, why, f"{text} is stopped and drained", log)

    def _tree_cycle(self, tree: Tree, log: PassLog) -> Iterator[None]:
        world = self._world
        heads = self._heads(tree, log)
        if not heads:
            world.awake.pop(tree, None)
            return
        holders = [world.states[name] for name in sorted(tree.holders)] if tree.holders else []
        promises = Promises(holders, tree.leaving if world.policy.hold_for_preemptor else {})
        cycle = Cycle(
            number=self._cycle,
            policy=world.policy,
            flavors=world.flavors,
            promises=promises,
            barred=partial(world.barred, tree),
        )
        kept = self._keep(cycle, holders, log)
        owners = {entry.state for entry in kept}
        entries = list(kept)
        for state, head in heads:
            if state not in owners:
                entries.append(cycle.nominate(state, head))
                if not holders and len(entries) % NOMINATED_PER_STEP == 0:
                    yield  # the ledger is as it was; with holders it shows the room that is held as used
        moved = False
        for entry in cycle.run(kept, entries[len(kept) :]):
            if entry.outcome is Outcome.ADMITTED:
                self._admit(entry, log)
                moved = True
            else:
                log.looked[entry.key[2]] = None
            if log.report is not None:
                log.report.note(tree.root.name, entry)
        if log.report is not None:
            log.report.preempted.extend(
                (victim.charge.workload.uid, entry.key[2], victim.reason.value) for entry, victim in cycle.evictions
            )
        moved = self._settle_outcomes(tree, cycle, entries, log) or moved
        tree.reserved = [(cell.fr, amount, entry.key[2]) for entry, cell, amount in cycle.reserved]
        for name in tree.holders:
            hold = world.states[name].hold
            assert hold is not None
            tree.reserved += [(fr, amount, hold.pending.key[2]) for fr, amount in hold.usage.items()]
        if moved:
            tree.seen.clear()
        elif self._known(tree, entries):
            world.awake.pop(tree, None)

    def _settle_outcomes(self, tree: Tree, cycle: Cycle, entries: list[Entry], log: PassLog) -> bool:
        """Put back the heads that did not get in, then evict the victims; True if anything changed.

        In this order, because an admission that is taken back wakes whom the cycle parked in vain.
        """
        moved = False
        for entry in entries:
            if entry.outcome is not Outcome.ADMITTED and self._requeue(tree, entry, cycle, log):
                moved = True
        for entry, victim in cycle.evictions:
            if not victim.charge.evicted:
                moved = True
                self._preempt(tree, entry, victim, log)
        return moved

    def _known(self, tree: Tree, entries: list[Entry]) -> bool:
        """Whether the heads were in this very state before, with nothing moved since: going on is pointless."""
        state = tuple(
            sorted((entry.key[2], entry.pending.progress or (), entry.state.hold is not None) for entry in entries)
        )
        known = state in tree.seen
        tree.seen.add(state)
        return known

    def _heads(self, tree: Tree, log: PassLog) -> list[tuple[ClusterQueueState, Pending]]:
        """One head of every cluster queue of *tree* that has one; holds of others than heads are void."""
        states = self._world.states
        found = []
        for name in list(tree.ready):
            state = states.get(name)
            head = None if state is None else state.pending.head()
            if state is None or head is None:
                del tree.ready[name]
            else:
                found.append((state, head))
        for name in list(tree.holders) if tree.holders else ():
            state = states[name]
            if state.hold is not None and state.hold.pending is not state.pending.head():
                log.doubt = True
                self._world.drop_hold(state)
        return found

    def _keep(self, cycle: Cycle, holders: list[ClusterQueueState], log: PassLog) -> list[Entry]:
        """The heads that still can use the room held for them; the other holds are void."""
        kept = []
        for state in holders:
            entry = cycle.keep(state)
            if entry is None:
                assert state.hold is not None
                log.void(state.hold.pending.key[2])
                self._world.drop_hold(state)
            else:
                kept.append(entry)
        return kept

    def _admit(self, entry: Entry, log: PassLog) -> None:
        world = self._world
        pending, state = entry.pending, entry.state
        workload = pending.workload
        admission = Admission(state.name, entry.assignments(), log.now_ms)
        if state.hold is not None:
            world.set_hold(state, None)
        state.pending.remove(pending)
        del world.pending[workload.uid]
        usage = tuple(entry.assignment.usage.items())
        world.enter(Charge(workload, admission, state.leaf, usage, assumed=True))
        log.admit(Admit(workload.uid, admission))

    def _preempt(self, tree: Tree, entry: Entry, victim: Victim, log: PassLog) -> None:
        charge = victim.charge
        if self.policy.loops_end:
            taken = kind_of(charge.leaf.name, charge.workload)
            tree.loops.note(entry.kind, taken, victim.reason, population=partial(self._world.population, tree))
        if log.take_back(charge.workload.uid):
            self._world.take_back(charge)
            return
        text = _makes_room(entry.pending.workload, entry.state.name)
        self._evict(charge, entry.key[2], victim.reason, text, log)

    def _evict(
        self, charge: Charge, preemptor: WorkloadUid | None, why: EvictionReason, message: str, log: PassLog
    ) -> None:
        charge.evicting = True
        charge.preemptor = preemptor
        self._world.rerank(charge)
        log.evict(Evict(charge.workload.uid, preemptor, why, message))

    def _requeue(self, tree: Tree, entry: Entry, cycle: Cycle, log: PassLog) -> bool:
        """Back in line, or parked; True if that changed the line. Follows: ordering specification, section 4."""
        pending, state, outcome = entry.pending, entry.state, entry.outcome
        self._world.touch(entry.key[2])
        keeps = outcome in (Outcome.SKIPPED, Outcome.NO_CANDIDATES)
        pending.progress = entry.assignment.progress if keeps else None
        pending.progress_cycle = self._cycle
        pending.progress_generation = state.leaf.generation
        if outcome is Outcome.PENDING_PREEMPTION:
            self._await(entry, cycle, log)
            return False
        if state.hold is None:
            pending.victims = {}
        if outcome is Outcome.SKIPPED or pending.progress is not None or state.strict:
            return False
        assert pending.bucket is not None
        state.pending.park(pending.bucket)
        tree.parked[state.name] = None
        return True

    def _await(self, entry: Entry, cycle: Cycle, log: PassLog) -> None:
        """It waits for victims to leave: first in its line, and with its room held, as the policy says."""
        state, pending = entry.state, entry.pending
        if not state.strict or self.policy.hold_for_preemptor:
            state.pending.sticky = pending
        others = {**cycle.gone, **cycle.promises.leaving} if entry.waits else {}
        going = [victim.charge for victim in entry.victims] or [*others.values()]
        if state.hold is None or not entry.waits:
            pending.victims = {charge.workload.uid: charge.leaf for charge in going}
        if self.policy.hold_for_preemptor and log.may_hold(entry.key[2], anew=bool(entry.victims)):
            usage = {cell.fr: amount for cell, amount in entry.assignment.usage.items()}
            self._world.set_hold(state, Hold(pending, usage=usage, flavors=entry.flavors()))

    # -- answers -----------------------------------------------------------------------------------------------

    def reason_of(self, uid: WorkloadUid) -> Reason | None:
        """Why *uid* waits, None if it does not. Cost: one look at its flavors, whatever else waits."""
        world = self._world
        pending = world.pending.get(uid)
        if pending is None:
            return None
        if pending.blocked is not None:
            return pending.blocked
        assert pending.cluster_queue is not None
        state = world.states[pending.cluster_queue]
        if not world.hierarchy.settled:
            return explain.standing(state) or reason(ReasonCode.NOT_EVALUATED)
        return explain.explain(state, pending, world.flavors)

    def is_charged(self, uid: WorkloadUid) -> bool:
        """Whether *uid* holds quota, assumed or confirmed."""
        return uid in self._world.charges

    def may_preempt(self, preemptor: WorkloadUid, victim: WorkloadUid) -> bool:
        """Whether quota rules let *victim* lose its node to *preemptor*."""
        return may_preempt(self._world, preemptor, victim)

    def admission_of(self, uid: WorkloadUid) -> Admission | None:
        """The admission of *uid*, None if it holds no quota."""
        charge = self._world.charges.get(uid)
        return None if charge is None else charge.admission

    def workload(self, uid: WorkloadUid) -> Workload | None:
        """*uid* as the world last showed it."""
        return self._world.workloads.get(uid)

    def cluster_queue_names(self) -> list[ClusterQueueName]:
        """Every cluster queue that exists or still holds something, by name."""
        return sorted(self._world.states)

    def view(self, name: ClusterQueueName) -> views.ClusterQueueView:
        """The cluster queue *name*. Raises: KeyError, when nothing is known of it."""
        return views.cluster_queue_view(self._world, name)

    def cohort_names(self) -> list[CohortName]:
        """Every cohort, those without an object too, by name."""
        return sorted(self._world.hierarchy.cohorts)

    def cohort_view(self, name: CohortName) -> views.CohortView:
        """The cohort *name*. Raises: KeyError, when nothing names it."""
        return views.cohort_view(self._world, name)

    def tree(self) -> tuple[views.TreeView, ...]:
        """Every tree, for drawing."""
        return views.forest(self._world)

    def workloads_of(self, name: ClusterQueueName) -> list[views.Waiting]:
        """What waits in *name*, in order, with its place in line. Raises: KeyError, when nothing is known of it."""
        return views.waiting(self._world, name)

    def running_in(self, name: ClusterQueueName) -> list[views.Running]:
        """What holds quota of *name*, the last to be taken first. Raises: KeyError, when nothing is known of it."""
        return views.running(self._world, name)

    # -- the state as a whole ----------------------------------------------------------------------------------

    def digest(self) -> bytes:
        """16 bytes, equal for equal states. Cost: O(workloads that changed since the last digest + quota objects)."""
        return self._digest.of(self._world)

    def fork(self) -> "Engine":
        """An engine in the same state, independent from now on. Cost: O(nodes + workloads)."""
        made = Engine(self.policy)
        made._world, made._digest, made._cycle = fork(self._world), self._digest.fork(), self._cycle
        return made

    def check(self) -> list[str]:
        """Which invariants do not hold, everything recomputed from scratch; empty if all is well."""
        return violations(self._world)

    def check_queue(self, name: ClusterQueueName) -> list[tuple[str, str]]:
        """Which invariants of one queue do not hold, see ``check.spot_check``."""
        return spot_check(self._world, name)


def _makes_room(preemptor: Workload, cluster_queue: ClusterQueueName) -> str:
    return f"makes room for {preemptor.name} in ClusterQueue {cluster_queue}"
