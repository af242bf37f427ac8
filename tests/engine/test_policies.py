"""Where the shipped default differs from the reference, and what is right there: ADRs 0010 to 0013."""

import msgspec

from extender.model.effects import Admit, Evict
from extender.model.events import ClusterQueueSeen, EvictionRefused, WorkloadSeen
from extender.model.names import WorkloadUid
from extender.model.quota import StopPolicy
from extender.model.reasons import ReasonCode, reason
from tests.engine.drawing import CLASSICAL, FAIR, REFERENCE, REFERENCE_FAIR, Lab, workload

HOLD = """
K
  a 4 reclaim=any
  b 0
  c 0
"""


def test_nobody_starts_in_room_that_victims_still_occupy():
    drawing = "K\n  a 2 reclaim=any\n  b 3\n  c 0\n  d 0"
    for policy, want in ((REFERENCE, ["fits", "fits-too"]), (CLASSICAL, ["fits"])):
        lab = Lab(drawing, policy)
        lab.runs("borrower", "c", 4)
        lab.waits("owner", "a", 2)
        lab.waits("fits", "b", 1)
        lab.waits("fits-too", "d", 1)

        assert lab.admitted() == want

        lab.gone("borrower")
        lab.decide()

        assert all(lab.engine.is_charged(WorkloadUid(name)) for name in ("owner", "fits", "fits-too"))


def competing(policy) -> Lab:
    """The victim of *owner* leaves; *rival* of the same queue tree would be served first by priority."""
    lab = Lab(HOLD, policy)
    lab.runs("borrower", "b", 4)
    lab.waits("owner", "a", 4)
    assert lab.victims() == {"borrower": "InCohortReclamation"}
    return lab


def test_freed_room_goes_to_the_preemptor():
    lab = Lab("K 4\n  a 0 reclaim=any preempting_borrow=any\n  b 0\n  c 0")
    lab.runs("low", "b", 4)
    lab.waits("owner", "a", 4, priority=1)

    assert lab.victims() == {"low": "InCohortReclaimWhileBorrowing"}

    lab.waits("rival", "c", 4, priority=9)

    assert lab.decide() == ()

    lab.gone("low")

    assert lab.admitted() == ["owner"]


def test_a_rival_is_told_for_whom_room_is_held():
    lab = Lab("K 1\n  a 4 reclaim=any\n  b 0\n  c 0")
    lab.runs("low", "b", 3)
    lab.waits("owner", "a", 4)
    lab.decide()
    lab.waits("rival", "c", 2)

    assert lab.decide() == ()
    assert lab.why("rival") == "4 gpu of f is held for owner, which goes first"


def test_in_the_reference_a_rival_takes_it():
    lab = Lab("K 4\n  a 0 reclaim=any preempting_borrow=any\n  b 0\n  c 0", REFERENCE)
    lab.runs("low", "b", 4)
    lab.waits("owner", "a", 4, priority=1)
    lab.decide()
    lab.waits("rival", "c", 4, priority=9)
    lab.gone("low")

    assert lab.admitted() == ["rival"]


def test_a_preemptor_waits_for_its_victims_instead_of_choosing_more():
    lab = Lab("K\n  a 4 reclaim=any\n  b 0\n  c 0")
    lab.runs("b1", "b", 2, at=9)
    lab.runs("b2", "b", 2, at=8)
    lab.waits("owner", "a", 4)

    assert lab.victims() == {"b1": "InCohortReclamation", "b2": "InCohortReclamation"}
    assert lab.why("owner") == "2 of 2 preempted workloads have not left yet"

    lab.gone("b1")

    assert lab.decide() == ()
    assert lab.why("owner") == "1 of 2 preempted workloads have not left yet"

    lab.gone("b2")

    assert lab.admitted() == ["owner"]


def test_others_count_leaving_victims_as_gone_and_held_room_as_used():
    lab = Lab("K\n  a 4 reclaim=any\n  b 4 reclaim=any\n  c 0\n  d 0")
    lab.runs("c1", "c", 4, at=9)
    lab.runs("d1", "d", 4, at=1)
    lab.waits("for-a", "a", 4)

    assert lab.victims() == {"c1": "InCohortReclamation"}

    lab.waits("for-b", "b", 4)

    assert lab.victims() == {"d1": "InCohortReclamation"}

    lab.gone("d1")

    assert lab.admitted() == ["for-a"]

    lab.gone("c1")

    assert lab.admitted() == ["for-b"]


def test_what_a_large_victim_leaves_over_is_waited_for():
    lab = Lab("K\n  a 2 reclaim=any\n  b 2 reclaim=any\n  c 0")
    lab.runs("c1", "c", 4)
    lab.waits("for-a", "a", 2)

    assert lab.victims() == {"c1": "InCohortReclamation"}

    lab.waits("for-b", "b", 2)

    assert lab.decide() == ()
    assert lab.why("for-b") == "1 of 1 preempted workloads have not left yet"

    lab.gone("c1")

    assert sorted(lab.admitted()) == ["for-a", "for-b"]


def test_an_own_victim_that_leaves_is_waited_for_too():
    lab = Lab("K 2\n  a 4 within=lower reclaim=any\n  b 2 reclaim=any within=lower\n  c 0")
    lab.runs("c1", "c", 4, at=2)
    lab.runs("b1", "b", 4, at=1)
    lab.waits("for-b", "b", 2, priority=3)
    first = lab.victims()
    lab.waits("for-a", "a", 4, priority=3)
    second = lab.victims()

    assert not first.keys() & second.keys()

    lab.gone(*first, *second)
    lab.decide()

    assert lab.engine.is_charged(WorkloadUid("for-b"))
    assert lab.engine.is_charged(WorkloadUid("for-a"))


def dropped(lab: Lab, *events) -> list[str]:
    """After *events* the room that was held goes to a rival."""
    lab.waits("rival", "c", 4)
    assert lab.decide() == ()
    lab.apply(*events)
    lab.decide()
    lab.gone("borrower")
    return lab.admitted()


def test_the_hold_ends_when_its_owner_goes():
    lab = competing(CLASSICAL)
    lab.waits("rival", "c", 4)
    lab.gone("owner")
    lab.gone("borrower")

    assert lab.admitted() == ["rival"]


def test_the_hold_ends_when_its_owner_must_not_be_tried():
    lab = competing(CLASSICAL)
    owner = msgspec.structs.replace(lab.records["owner"], held=reason(ReasonCode.FOREIGN_GATE, gates="x"))

    assert dropped(lab, WorkloadSeen(owner)) == ["rival"]


def test_the_hold_ends_when_its_queue_is_stopped():
    lab = competing(CLASSICAL)
    spec = lab.engine._world.states["a"].leaf.spec

    assert dropped(lab, ClusterQueueSeen(msgspec.structs.replace(spec, stop_policy=StopPolicy.HOLD))) == ["rival"]


def test_the_hold_ends_when_quota_is_cut():
    lab = competing(CLASSICAL)
    lab.waits("rival", "c", 2)
    lab.draw(HOLD.replace("a 4", "a 2"))
    lab.decide()
    lab.gone("borrower")

    assert lab.admitted() == ["rival"]
    assert lab.code("owner") == "ExceedsMaxQuota"


def test_a_quota_cut_while_victims_leave_costs_as_few_more_as_it_must():
    lab = Lab("K 1\n  q 5 within=lower")
    for name in ("r1", "r2", "r3", "r4", "r5", "r6"):
        lab.runs(name, "q", 1)
    lab.waits("owner", "q", 2, priority=1)
    first = lab.victims()
    lab.draw("K 0\n  q 5 within=lower")
    second = lab.victims()
    lab.gone(*first, *second)

    assert (len(first), len(second)) == (2, 1)
    assert lab.admitted() == ["owner"]


def test_the_hold_ends_when_its_flavor_goes():
    lab = competing(CLASSICAL)
    lab.draw("K\n  a red/gpu=4 reclaim=any\n  b 0\n  c 0")

    assert lab.admitted() == ["owner"]
    assert lab.flavors("owner") == {"gpu": "red"}


def test_a_refused_eviction_is_tried_again():
    lab = competing(CLASSICAL)
    lab.apply(EvictionRefused(WorkloadUid("borrower"), "a budget"))

    assert lab.victims() == {"borrower": "InCohortReclamation"}


def test_a_preemptor_keeps_its_place_in_a_strict_line():
    lab = Lab("q 2 strict within=lower")
    lab.runs("low", "q", 2)
    lab.waits("mid", "q", 2, priority=1)
    lab.decide()
    lab.waits("high", "q", 2, priority=9)

    assert lab.engine.workloads_of("q")[0].workload.name == "mid"


def test_a_hold_passes_to_the_head_that_replaced_its_owner():
    lab = Lab("q 2 strict within=lower", msgspec.structs.replace(REFERENCE, hold_for_preemptor=True))
    lab.runs("low", "q", 2)
    lab.waits("mid", "q", 2, priority=1)
    lab.decide()
    changed = msgspec.structs.replace(workload("mid", "q", 1, priority=1), created_ms=2_000)
    lab.records["mid"] = changed
    lab.apply(WorkloadSeen(changed))
    lab.decide()
    lab.gone("low")

    assert lab.admitted() == ["mid"]


def test_held_room_keeps_its_flavor_if_an_earlier_one_would_need_victims():
    lab = Lab("K cohort\n  q a/gpu=2 b/gpu=2 within=lower stop_at_preempting\n  p a/gpu=0")
    lab.runs("a-low", "q", 2, flavor="a", priority=3)
    lab.runs("b-low", "q", 2, flavor="b", priority=1)
    lab.waits("new", "q", 2, priority=2)

    assert lab.victims() == {"b-low": "InClusterQueue"}

    lab.gone("b-low")

    assert lab.admitted() == ["new"]
    assert lab.flavors("new") == {"gpu": "b"}


def test_partial_admission_holds_for_as_many_as_found_victims():
    lab = Lab("q 6 within=lower")
    lab.runs("low", "q", 2)
    lab.waits("job", "q", 1, count=10, count_min=2, priority=1)
    lab.decide()

    assert lab.decide() == ()

    lab.gone("low")

    assert lab.admitted() == ["job"]


def test_two_with_held_room_may_see_the_same_better_place():
    lab = Lab(
        """
        K best/gpu=1
          p best/gpu=0 a/gpu=1 within=lower
          q best/gpu=0 b/gpu=1 within=lower
          r best/gpu=0
        """
    )
    lab.runs("best", "r", 1, flavor="best", priority=9)
    lab.runs("in-p", "p", 1, flavor="a")
    lab.runs("in-q", "q", 1, flavor="b")
    lab.waits("for-p", "p", 1, priority=1)
    lab.waits("for-q", "q", 1, priority=1)

    assert lab.victims() == {"in-p": "InClusterQueue", "in-q": "InClusterQueue"}

    lab.gone("best")

    assert lab.admitted() == ["for-p"]
    assert lab.flavors("for-p") == {"gpu": "best"}

    lab.gone("in-q")

    assert lab.admitted() == ["for-q"]
    assert lab.flavors("for-q") == {"gpu": "b"}


def test_an_own_victim_returns_only_if_the_others_stay_fair_game():
    both = {"mine": "InClusterQueue", "b2": "InCohortFairSharing"}
    for policy, want in ((REFERENCE_FAIR, {"b2": "InCohortFairSharing"}), (FAIR, both)):
        lab = Lab("K 13\n  A 0 within=lower reclaim=any\n  B 0", policy)
        lab.runs("mine", "A", 2)
        lab.runs("high", "A", 3, priority=9)
        lab.runs("b1", "B", 4, at=1)
        lab.runs("b2", "B", 4, at=2)
        lab.waits("new", "A", 4, priority=1)

        assert lab.victims() == want


def test_an_own_victim_returns_if_the_others_are_fair_game_all_the_same():
    lab = Lab("K 13\n  A 0 within=lower reclaim=any\n  B 0", FAIR)
    lab.runs("mine", "A", 1)
    lab.runs("mine-too", "A", 1)
    lab.runs("b1", "B", 5, at=1)
    lab.runs("b2", "B", 6, at=2)
    lab.waits("new", "A", 5, priority=1)

    assert lab.victims() == {"b2": "InCohortFairSharing"}


def test_effects_say_for_whom_and_why():
    lab = competing(CLASSICAL)
    lab.gone("borrower")
    (effect,) = lab.decide()

    assert isinstance(effect, Admit)
    assert (effect.uid, effect.admission.cluster_queue, effect.admission.at_ms) == ("owner", "a", 1_002_000)

    lab = Lab(HOLD)
    lab.runs("borrower", "b", 4)
    lab.waits("owner", "a", 4)
    (effect,) = lab.decide()

    assert effect == Evict(
        WorkloadUid("borrower"),
        WorkloadUid("owner"),
        effect.reason,
        "makes room for owner in ClusterQueue a",
    )
