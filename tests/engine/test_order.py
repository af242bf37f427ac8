"""Who goes first: lines, cycles, and the worked examples of the ordering specification, sections 3.3 and 10."""

import pytest

from extender.model.names import WorkloadUid
from tests.engine.drawing import REFERENCE, REFERENCE_FAIR, Lab

CLASSIC = """
K
  A 4
  B 4
  C 4
"""


def test_a_lower_borrow_level_goes_before_a_higher_priority():
    lab = Lab(CLASSIC, REFERENCE)
    for name, size in (("A", 4), ("B", 1), ("C", 2)):
        lab.runs(f"old-{name}", name, size)
    lab.waits("a", "A", 3, priority=10)
    lab.waits("b", "B", 3, priority=0)
    lab.waits("c", "C", 4, priority=100)

    first = lab.cycle()

    assert first.order == {"K": ["b", "c", "a"]}
    assert first.admitted == ["b"]
    assert first.pending == dict.fromkeys(("a", "c"), "skipped/FailedAfterNomination")

    second = lab.cycle()

    assert second.order == {"K": ["c", "a"]}
    assert second.pending == dict.fromkeys(("a", "c"), "PreemptionNoCandidates")


def test_a_blocked_head_keeps_room_for_one_cycle():
    lab = Lab(CLASSIC, REFERENCE)
    for name, size in (("A", 4), ("B", 4), ("C", 2)):
        lab.runs(f"old-{name}", name, size)
    lab.waits("a", "A", 3, priority=10)
    lab.waits("c", "C", 4, priority=100)
    lab.waits("small", "B", 1)

    assert lab.cycle().pending["small"] == "skipped/FailedAfterNomination"
    assert lab.code("small") == "ReservedForPreemptor"
    assert lab.why("small") == "4 gpu of f is held for c, which goes first"
    assert lab.cycle().admitted == ["small"]


def test_an_own_right_to_reclaim_reserves_nothing():
    lab = Lab(CLASSIC.replace("C 4", "C 4 reclaim=any"), REFERENCE)
    for name, size in (("A", 4), ("B", 4), ("C", 2)):
        lab.runs(f"old-{name}", name, size)
    lab.waits("c", "C", 4, priority=100)
    lab.waits("small", "B", 1)

    assert lab.cycle().admitted == ["small"]


@pytest.mark.parametrize(
    ("limit", "want"),
    [
        pytest.param("borrows=2", ["small"], id="no more is kept than the queue may borrow"),
        pytest.param("", [], id="without a limit everything it asks is kept"),
    ],
)
def test_a_reservation_ends_at_the_borrowing_limit(limit, want):
    lab = Lab(f"K 3\n  A 2 {limit}\n  B 0", REFERENCE)
    lab.runs("old-A", "A", 4)
    lab.waits("big", "A", 2, priority=9)
    lab.waits("small", "B", 1)

    report = lab.cycle()

    assert report.pending["big"] == "PreemptionNoCandidates"
    assert report.admitted == want


def test_a_reservation_may_be_negative():
    lab = Lab("K 9\n  A 2 borrows=1\n  B 2", REFERENCE)
    lab.runs("old-A", "A", 5)
    lab.waits("big", "A", 2)
    lab.waits("small", "B", 1)
    before = lab.engine.view("A")

    assert lab.cycle().admitted == ["small"]
    assert lab.engine.view("A").usage == before.usage
    assert lab.engine.check() == []


SHARES = """
R 2
  G cohort
    g1 4
    g2 4
  d 4
"""


def test_a_tournament_by_share():
    lab = Lab(SHARES, REFERENCE_FAIR)
    for name, size in (("g1", 6), ("g2", 1), ("d", 4)):
        lab.runs(f"old-{name}", name, size)
    for name in ("g1", "g2", "d"):
        lab.waits(f"new-{name}", name, 1)

    report = lab.cycle()

    assert report.order == {"R": ["new-g2", "new-g1", "new-d"]}
    shares = {name: dict(head.shares) for name, head in report.heads.items()}
    assert shares["new-g2"] == {"G": 0.0, "R": 0.0}
    assert shares["new-g1"]["G"] == pytest.approx(214.29, abs=0.01)
    assert shares["new-g1"]["R"] == shares["new-d"]["R"] == pytest.approx(71.43, abs=0.01)


def test_a_tournament_between_a_queue_on_its_own_and_a_head_that_cannot_fit():
    lab = Lab("K\n  a 4\n  b 4\nalone 2", REFERENCE_FAIR)
    lab.waits("never", "a", 99)
    lab.waits("one", "b", 1)
    lab.waits("other", "alone", 1)

    report = lab.cycle()

    assert report.order == {"K": ["never", "one"], "alone": ["other"]}
    assert sorted(report.admitted) == ["one", "other"]


def test_full_ties_end_with_the_uid():
    for policy in (REFERENCE, REFERENCE_FAIR):
        lab = Lab("K 1\n  a 0\n  b 0", policy)
        lab.waits("zeta", "a", 1, created=5)
        lab.waits("eta", "b", 1, created=5)

        assert lab.cycle().admitted == ["eta"]


def test_the_line_is_ordered_by_priority_then_age_then_uid():
    lab = Lab("q 1")
    lab.runs("full", "q")
    lab.waits("young", "q", created=9)
    lab.waits("twin-b", "q", created=5)
    lab.waits("twin-a", "q", created=5)
    lab.waits("high", "q", created=9, priority=1)

    assert [one.workload.name for one in lab.engine.workloads_of("q")] == ["high", "twin-a", "twin-b", "young"]
    assert [one.position for one in lab.engine.workloads_of("q")] == [1, 2, 3, 4]


def test_best_effort_lets_smaller_ones_pass():
    lab = Lab("q 2")
    lab.waits("big", "q", 3, priority=1)
    lab.waits("small", "q", 2)

    assert lab.admitted() == ["small"]


def test_strict_order_does_not_and_the_pass_ends_all_the_same():
    lab = Lab("q 2 strict")
    lab.waits("big", "q", 3, priority=1)
    lab.waits("small", "q", 2)
    lab.waits("tiny", "q", 1)

    result = lab.engine.run_pass(0)

    assert (result.effects, result.cycles) == ((), 2)
    assert not lab.engine.has_work
    assert lab.why("tiny") == "StrictFIFO: 3rd in ClusterQueue q, behind big"
    assert lab.why("small") == "StrictFIFO: 2nd in ClusterQueue q, behind big"


def test_like_workloads_are_parked_together():
    lab = Lab("q 2")
    lab.runs("full", "q", 2)
    for number in range(100):
        lab.waits(f"w{number}", "q", 1)

    assert lab.engine.run_pass(0).cycles == 2
    assert lab.engine.view("q").pending_inadmissible == 100

    lab.waits("late", "q", 1)

    assert not lab.engine.has_work
    assert lab.engine.view("q").pending_inadmissible == 101


def test_parked_ones_wake_when_something_leaves_their_tree():
    lab = Lab("K\n  q 1\n  p 1\nelsewhere 1")
    lab.runs("in-p", "p", 2)
    lab.runs("in-elsewhere", "elsewhere", 1)
    lab.waits("first", "q", 1)
    lab.waits("second", "q", 1)
    lab.decide()
    lab.gone("in-elsewhere")

    assert not lab.engine.has_work

    lab.gone("in-p")

    assert lab.admitted() == ["first", "second"]


def test_a_preemptor_stays_in_front_of_what_comes_later():
    lab = Lab("q 2 within=lower", REFERENCE)
    lab.runs("low", "q", 2)
    lab.waits("mid", "q", 2, priority=1)

    assert lab.victims() == {"low": "InClusterQueue"}

    lab.waits("high", "q", 2, priority=9)

    assert [one.workload.name for one in lab.engine.workloads_of("q")] == ["mid", "high"]
    assert lab.engine.workloads_of("q")[1].position == 2
    assert lab.code("high") == "QuotaUsed"

    lab.gone("low")

    assert lab.cycle().admitted == ["mid"]
    assert lab.victims() == {"mid": "InClusterQueue"}


def test_a_pass_takes_back_what_it_would_only_stop_again():
    lab = Lab("q 2 within=lower", REFERENCE)
    lab.runs("low", "q", 2)
    lab.waits("mid", "q", 2, priority=1)
    lab.decide()
    lab.waits("high", "q", 2, priority=9)
    lab.gone("low")

    result = lab.engine.run_pass(0)

    assert [effect.uid for effect in result.effects] == ["high"]
    assert result.taken_back == ("mid",)
    assert lab.why("mid") == "ClusterQueue q uses 2 of its 2 gpu of f, 2 more needed"


def test_one_pass_admits_everything_that_fits():
    lab = Lab("q 600")
    for number in range(536):
        lab.waits(f"w{number}", "q", 1)

    assert len(lab.admitted()) == 536


def test_many_removals_keep_the_line_small():
    lab = Lab("q 1")
    lab.runs("full", "q", 1)
    for number in range(300):
        lab.waits(f"w{number:03}", "q", 1)
    for number in range(290):
        lab.gone(f"w{number:03}")

    assert [one.workload.name for one in lab.engine.workloads_of("q")] == [f"w{number}" for number in range(290, 300)]

    lab.gone("full")

    assert lab.admitted() == ["w290"]
    assert lab.engine.is_charged(WorkloadUid("w290"))
