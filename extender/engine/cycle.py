"""One cycle: heads → nominate → order → admit or preempt → requeue.

All heads are assessed against the same ledger, then processed one after the other, each checked again on top of what
came before it. What is reserved for heads that were not admitted is taken back at the end. Source: ordering
specification, sections 2 to 5.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet

from extender.engine.entry import Entry, Outcome
from extender.engine.flavors import FIT, NO_FIT, PREEMPT, Assignment, Mode
from extender.engine.hierarchy import Cell, Charge
from extender.engine.ledger import add_all, add_usage, fits, level, remove_all, remove_usage
from extender.engine.loops import Barred, Kind
from extender.engine.order import Contender, Tournament, classical
from extender.engine.preemption import classical as classical_search
from extender.engine.preemption import fair as fair_search
from extender.engine.preemption.candidates import Question, Victim
from extender.engine.promises import Promises
from extender.engine.queues import Pending, Progress
from extender.engine.state import ClusterQueueState
from extender.model.names import FlavorName, WorkloadUid
from extender.model.policy import Policy
from extender.model.quota import PreemptionPolicy, ResourceFlavor


class Cycle:
    """One cycle over the heads of one tree."""

    def __init__(
        self,
        *,
        number: int,
        policy: Policy,
        flavors: Mapping[FlavorName, ResourceFlavor],
        promises: Promises,
        barred: Callable[[Kind], Barred | None],
    ) -> None:
        self.number = number
        self.policy = policy
        self.flavors = flavors
        self.gone: dict[WorkloadUid, Charge] = {}
        self.evictions: list[tuple[Entry, Victim]] = []
        self.reserved: list[tuple[Entry, Cell, int]] = []
        self.promises = promises
        self._barred = barred
        self._admitted: list[WorkloadUid] = []
        self._recomputing = False
        self._same_as_assessed = policy.fit_means_all and not self.promises.leaving
        self._searched: tuple[Entry, Cell, int, tuple[list[Victim], bool]] | None = None

    def nominate(self, state: ClusterQueueState, pending: Pending) -> Entry:
        """Assess one head against the ledger as it stands."""
        plan = state.plan(pending.shape, self.flavors)
        entry = Entry(state, pending, plan)
        self._assess(entry, state.progress_of(pending, self.number))
        return entry

    def keep(self, state: ClusterQueueState) -> Entry | None:
        """The head for which *state* holds room, if it fits once all victims have left; None: the hold is void."""
        hold = state.hold
        assert hold is not None
        entry = Entry(state, hold.pending, state.plan(hold.pending.shape, self.flavors))
        held = self.promises.lift(state)
        with self.promises.future():
            for only in (None, hold.flavors):
                self._assess(entry, None, only, search=False)
                if entry.assignment.mode == FIT:
                    break
        if entry.assignment.mode != FIT:
            return None
        self.promises.lower(state, held)
        return entry

    def _assess(
        self,
        entry: Entry,
        progress: Progress | None,
        only: list[list[FlavorName]] | None = None,
        *,
        search: bool = True,
    ) -> None:
        """Give *entry* its assignment and victims: for the full counts, else for as many pods as will do."""
        plan = entry.plan
        if self._attempt(entry, plan.counts, progress, only, search=search) or not plan.reducible:
            return
        full = entry.assignment
        best: tuple[int, Assignment, list[Victim], bool] | None = None
        low, high = 0, plan.steps + 1
        while low < high:
            middle = (low + high) // 2
            if self._attempt(entry, plan.counts_at(middle), progress, only, search=search):
                best = (middle, entry.assignment, entry.victims, entry.waits)
                high = middle
            else:
                low = middle + 1
        if best is not None and best[0] == low:
            _, entry.assignment, entry.victims, entry.waits = best
        else:
            entry.assignment, entry.victims, entry.waits = full, [], False

    def _attempt(
        self,
        entry: Entry,
        counts: tuple[int, ...],
        progress: Progress | None,
        only: list[list[FlavorName]] | None,
        *,
        search: bool,
    ) -> bool:
        """Assign *counts* pods; True if that fits, finds victims, or only has to wait for those of others."""

        def simulate(cell: Cell, amount: int) -> tuple[Mode, int]:
            if not search:
                return Mode.NO_CANDIDATES, level(cell, amount)[0]
            return self._simulate(entry, cell, amount)

        entry.victims, entry.waits = [], False
        entry.assignment = assignment = entry.state.scan(self.policy).assign(
            entry.plan, counts=counts, simulate=simulate, progress=progress, only=only
        )
        if assignment.mode == PREEMPT and search:
            entry.victims, entry.waits = self._search_all(entry, assignment)
        return assignment.mode == FIT or bool(entry.victims) or entry.waits

    def _search_all(self, entry: Entry, assignment: Assignment) -> tuple[list[Victim], bool]:
        """Victims for the whole assignment; those of the last simulation, if that asked the same question."""
        usage = assignment.usage
        if len(usage) == 1 and self._searched is not None:
            (cell, amount), last = *usage.items(), self._searched
            if last[0] is entry and last[1] is cell and last[2] == amount:
                return last[3]
        return self._search(entry, assignment.needs(), list(usage.items()))

    def _simulate(self, entry: Entry, cell: Cell, amount: int) -> tuple[Mode, int]:
        """How one amount that does not fit could be served by victims. Follows: flavor specification, section 4."""
        found, waits = self._search(entry, [cell], [(cell, amount)])
        self._searched = (entry, cell, amount, (found, waits))
        if not found and not waits:
            return Mode.NO_CANDIDATES, level(cell, amount)[0]
        going = [victim.charge for victim in found] + (list(self.promises.leaving.values()) if waits else [])
        for charge in going:
            remove_all(charge.usage)
        here = level(cell, amount)[0]
        for charge in going:
            add_all(charge.usage)
        return Mode.PREEMPT if any(charge.leaf is entry.leaf for charge in going) else Mode.RECLAIM, here

    def _search(self, entry: Entry, needs: list[Cell], requests: list[tuple[Cell, int]]) -> tuple[list[Victim], bool]:
        """Victims; or none, and whether it is enough to wait for those that are leaving already."""
        workload = entry.pending.workload
        leaving = self.promises.leaving
        barred: AbstractSet[WorkloadUid] = leaving.keys()
        if self._recomputing:
            barred = barred | self.gone.keys() | set(self._admitted)  # whom this cycle let in, it does not evict
        question = Question(
            entry.leaf,
            workload.uid,
            priority=workload.priority,
            created_ms=workload.created_ms,
            needs=needs,
            requests=requests,
            barred=barred,
            closes_a_loop=self._barred(entry.kind),
        )
        if not leaving or self._recomputing:
            return self._victims(question), False
        with self.promises.future():
            if question.fits(borrowing=True):
                return [], True
            return self._victims(question), False

    def _victims(self, question: Question) -> list[Victim]:
        strategies = self.policy.fair_sharing
        if strategies:
            return fair_search.victims(question, strategies, settled=self.policy.fair_fill_back)
        return classical_search.victims(question)

    def run(self, kept: list[Entry], entries: list[Entry]) -> Iterator[Entry]:
        """Process the heads of one tree: those with held room, then the others in their order.

        Each has its outcome when it is yielded; an admitted one has to be charged before the next is asked for.
        """
        order: Iterable[Contender]
        if len(entries) < 2:
            order = entries
        elif self.policy.fair_sharing:
            order = Tournament(entries)
        else:
            order = classical(entries)
        for entry in sorted(kept, key=lambda entry: entry.key):
            held = self.promises.lift(entry.state)
            entry.outcome = self._process(entry)
            if entry.outcome is Outcome.SKIPPED:  # another one with held room was faster to something better
                self.promises.lower(entry.state, held)
            yield entry
        for contender in order:
            assert isinstance(contender, Entry)
            contender.outcome = self._process(contender)
            yield contender
        for _, cell, amount in reversed(self.reserved):
            if amount < 0:
                cell.usage -= amount
            else:
                remove_usage(cell, amount)
        self.promises.close()

    def _process(self, entry: Entry) -> Outcome:
        """Follows: ordering specification, section 5."""
        if self.gone and self._overlaps(entry):
            self._recompute(entry)
        assignment = entry.assignment
        mode = assignment.mode
        if mode == FIT and self._same_as_assessed:
            return self._admit(entry)
        if mode == NO_FIT:
            return Outcome.NO_FIT
        if mode == PREEMPT and not entry.victims and not entry.waits:
            self._reserve_blocked(entry)
            return Outcome.NO_CANDIDATES
        if (mode != Mode.DEFERRED_FIT or self.policy.victims_hold_room) and not self._fits(entry):
            return Outcome.SKIPPED
        if mode == FIT and self._fits_now(entry):
            return self._admit(entry)
        if mode == FIT:
            entry.waits = True
        self._same_as_assessed = False
        for victim in entry.victims if mode == PREEMPT else ():
            self.gone[victim.charge.workload.uid] = victim.charge
            self.evictions.append((entry, victim))
        self.promises.promise(assignment.usage.items())
        return Outcome.PENDING_PREEMPTION

    def _admit(self, entry: Entry) -> Outcome:
        self._same_as_assessed = False
        self._admitted.append(entry.pending.workload.uid)
        return Outcome.ADMITTED

    def _overlaps(self, entry: Entry) -> bool:
        return any(victim.charge.workload.uid in self.gone for victim in entry.victims)

    def _recompute(self, entry: Entry) -> None:
        """Assess again as if all victims so far were gone, with the flavors it had."""
        self._searched = None
        self._recomputing = True
        with self.promises.future(self.gone.values()):
            self._assess(entry, None, entry.flavors())
        self._recomputing = False
        if entry.assignment.mode == FIT:
            entry.assignment.mode = Mode.DEFERRED_FIT
            entry.waits = True

    def _fits(self, entry: Entry) -> bool:
        """Whether it fits on top of what was promised and reserved, all victims and its own taken as gone."""
        usage = entry.assignment.usage.items()
        if not self.promises.leaving and fits(usage):
            return True
        gone = {**self.gone, **{victim.charge.workload.uid: victim.charge for victim in entry.victims}}
        with self.promises.future(gone.values()):
            return fits(usage)

    def _fits_now(self, entry: Entry) -> bool:
        """Whether it fits beside the victims that have not left, those of this cycle if the policy says so."""
        if not self.promises.leaving and not (self.gone and self.policy.victims_hold_room):
            return True
        with self.promises.present():
            return fits(entry.assignment.usage.items())

    def _reserve_blocked(self, entry: Entry) -> None:
        """Keep room for a preemptor without victims, unless its queue can always take its own quota back.

        Follows: ordering specification, section 5.4; there a negative amount lowers the queue's usage alone.
        """
        spec = entry.leaf.spec
        assert spec is not None
        if spec.preemption.reclaim_within_cohort is PreemptionPolicy.ANY:
            return
        self._same_as_assessed = False
        for cell, amount in entry.assignment.usage.items():
            if entry.assignment.level > 0:
                kept = amount if cell.limit is None else min(amount, cell.nominal + cell.limit - cell.usage)
            else:
                kept = max(0, min(amount, cell.nominal - cell.usage))
            if kept < 0:
                cell.usage += kept
            else:
                add_usage(cell, kept)
            self.reserved.append((entry, cell, kept))
