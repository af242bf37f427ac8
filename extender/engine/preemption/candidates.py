"""Who may be taken: the preemptor's question, the policies, and the order of candidates.

Source: preemption specification, sections 1 to 3.
"""

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from extender.engine.hierarchy import Cell, Charge, Leaf
from extender.engine.ledger import add_all, fits, remove_all
from extender.engine.loops import Barred
from extender.model.effects import EvictionReason
from extender.model.names import FlavorResource, WorkloadUid
from extender.model.quota import Preemption, PreemptionPolicy


class Victim(NamedTuple):
    """A charge that has to go, and by which right."""

    charge: Charge
    reason: EvictionReason


class Question:
    """Whose workloads have to go so that all of ``requests`` fits, where only ``needs`` lack room?

    ``needs`` judges the candidates, ``requests`` the success. ``barred`` are workloads it may not take,
    ``closes_a_loop`` says which others it may not (ADR 0018).
    """

    __slots__ = ("barred", "closes_a_loop", "created_ms", "leaf", "needs", "policies", "priority", "requests", "uid")

    def __init__(
        self,
        leaf: Leaf,
        uid: WorkloadUid,
        *,
        priority: int,
        created_ms: int,
        needs: Sequence[Cell],
        requests: Sequence[tuple[Cell, int]],
        barred: AbstractSet[WorkloadUid] = frozenset(),
        closes_a_loop: Barred | None = None,
    ) -> None:
        self.leaf = leaf
        self.uid = uid
        self.priority = priority
        self.created_ms = created_ms
        self.needs: dict[FlavorResource, Cell] = {cell.fr: cell for cell in needs}
        self.requests = [(cell, amount) for cell, amount in requests if amount > 0]
        self.policies = Preemption() if leaf.spec is None else leaf.spec.preemption
        self.barred = barred
        self.closes_a_loop = closes_a_loop

    def may_take(self, charge: Charge, reason: EvictionReason) -> bool:
        """Whether taking *charge* for *reason* closes no loop."""
        closes = self.closes_a_loop
        return closes is None or charge.evicted or not closes(charge.leaf.name, charge.workload, reason)

    def fits(self, *, borrowing: bool) -> bool:
        """Whether the requests fit now; without *borrowing* only within nominal quota."""
        if not borrowing and any(cell.usage + amount > cell.nominal for cell, amount in self.requests):
            return False
        return fits(self.requests)


def allowed(question: Question, policy: PreemptionPolicy, leaf: Leaf) -> list[Charge]:
    """The charges of *leaf* that *policy* lets *question* take and that use what it lacks, in candidate order.

    Cost: O(charges of the leaf), less if its policy ends the search at a priority.
    """
    if policy is PreemptionPolicy.NEVER or not leaf.charges:
        return []
    found = []
    priority = question.priority
    needs, barred = question.needs, question.barred
    equal_too = policy is PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY
    for key, charge in leaf.ranked:
        if policy is not PreemptionPolicy.ANY and key[1] >= priority:
            if key[1] > priority or not equal_too:
                if key[0]:
                    break  # evicted ones come first, the rest by priority: no lower one follows
                continue
            if question.created_ms >= charge.workload.created_ms:
                continue
        if charge.uses(needs) and key[3] not in barred:
            found.append(charge)
    return found


def fill_back(
    victims: list[Victim], *, still_fits: Callable[[], bool], keep: Callable[[int], bool] | None = None
) -> None:
    """Put back whom it does not take: from the last but one to the first, each who can return without harm.

    The victims are released when it is called and are the remaining ones released afterwards. The last of the list
    moves into a free place, as in the reference, so the order of the result means nothing. *keep* names by their place
    those who must not return. Follows: preemption specification, section 4.4.
    """
    for place in range(len(victims) - 2, -1, -1):
        usage = victims[place].charge.usage
        add_all(usage)
        if still_fits() and not (keep is not None and keep(place)):
            victims[place] = victims[-1]
            victims.pop()
        else:
            remove_all(usage)


def restore(victims: Iterable[Victim]) -> None:
    """Charge again what a search released."""
    for victim in victims:
        add_all(victim.charge.usage)
