"""What one pass decided, before anybody is told."""

from extender.engine.entry import CycleReport
from extender.model.effects import Admit, EngineEffect, Evict
from extender.model.names import WorkloadUid


class PassLog:
    """What one pass has done so far; ``looked`` are the workloads that were tried and did not get in.

    What it admitted it can take back, since nobody was told yet: better than to start a workload only to stop it.
    Whom it told to stop for one that is displaced in turn, it can let stay. Each once at most, so that this
    ends. ``doubt``: somebody was displaced since it was last asked whether all that were told have to go.
    """

    def __init__(self, now_ms: int, report: CycleReport | None = None) -> None:
        self.now_ms = now_ms
        self.report = report
        self.looked: dict[WorkloadUid, None] = {}
        self._effects: list[EngineEffect | None] = []
        self._admitted: dict[WorkloadUid, int] = {}
        self._preempted: dict[WorkloadUid, int] = {}
        self._spared: set[WorkloadUid] = set()
        self.doubt = False
        self.taken_back: dict[WorkloadUid, None] = {}
        self._voided: set[WorkloadUid] = set()

    def admit(self, effect: Admit) -> None:
        """Somebody gets in."""
        self._admitted[effect.uid] = len(self._effects)
        self._effects.append(effect)

    def evict(self, effect: Evict) -> None:
        """Somebody is told to stop."""
        if effect.preemptor is not None:
            self._preempted[effect.uid] = len(self._effects)
        self._effects.append(effect)

    def preempted(self) -> list[tuple[WorkloadUid, WorkloadUid]]:
        """Whom this pass told to stop, and for whom; without those that it has spared once."""
        places = [place for uid, place in self._preempted.items() if uid not in self._spared]
        effects = [self._effects[place] for place in places]
        return [(effect.uid, effect.preemptor) for effect in effects if isinstance(effect, Evict) and effect.preemptor]

    def spare(self, uid: WorkloadUid) -> None:
        """*uid* need not stop."""
        self._effects[self._preempted.pop(uid)] = None
        self._spared.add(uid)

    def hand_over(self, uid: WorkloadUid, preemptor: WorkloadUid, message: str) -> None:
        """*uid* has to stop for *preemptor*, not for whom it was told to."""
        place = self._preempted[uid]
        effect = self._effects[place]
        assert isinstance(effect, Evict)
        self._effects[place] = Evict(uid, preemptor, effect.reason, message)

    def take_back(self, uid: WorkloadUid) -> bool:
        """Whether *uid* got in in this very pass and now did not."""
        place = self._admitted.pop(uid, None)
        if place is None or uid in self.taken_back:
            return False
        self.taken_back[uid] = None
        self.doubt = True
        self._effects[place] = None
        return True

    def void(self, uid: WorkloadUid) -> None:
        """The room held for *uid* is of no use to it."""
        self._voided.add(uid)
        self.doubt = True

    def may_hold(self, uid: WorkloadUid, *, anew: bool) -> bool:
        """Whether room may be held for *uid*: not again in a pass that found it useless, unless it evicts *anew*."""
        return anew or uid not in self._voided

    def effects(self) -> tuple[EngineEffect, ...]:
        """What is to be done, in the order of decision."""
        return tuple(effect for effect in self._effects if effect is not None)
