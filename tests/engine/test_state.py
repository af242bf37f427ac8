"""Questions about the whole state: views, trees, digests, forks and the check."""

import msgspec
import pytest

from extender.engine import check, places
from extender.engine.hierarchy import Charge
from extender.model.events import ClusterQueueSeen, WorkloadGone, WorkloadSeen
from extender.model.names import ClusterQueueName, CohortName, WorkloadUid
from extender.model.quota import StopPolicy
from extender.model.reasons import ReasonCode, reason
from tests.engine.drawing import CLASSICAL, FAIR, FR, REFERENCE, Lab, workload

TREE = """
R 2
  X 1 weight=2
    x1 4 lends=2
    x2 4 within=lower reclaim=any
  y 3 strict
alone 5
"""
Q = ClusterQueueName


def busy(policy=CLASSICAL) -> Lab:
    """A tree with something in every place."""
    lab = Lab(TREE, policy)
    lab.runs("x2-low", "x2", 8, at=1)
    lab.runs("y-run", "y", 3, at=2)
    lab.waits("x2-high", "x2", 4, priority=3)
    lab.waits("y-big", "y", 99)
    lab.waits("y-small", "y", 1)
    lab.waits("x1-parked", "x1", 9)
    lab.waits("x1-parked-too", "x1", 9)
    lab.waits("alone-in", "alone", 2)
    lab.waits("lost", "nowhere", 2)
    held = msgspec.structs.replace(workload("held", "alone", 1), held=reason(ReasonCode.FOREIGN_GATE, gates="g"))
    lab.records["held"] = held
    lab.apply(WorkloadSeen(held))
    lab.decide()
    lab.waits("fresh", "alone", 1)
    return lab


def test_a_view_of_a_queue():
    lab = busy()
    view = lab.engine.view(Q("x2"))

    assert (view.cohort, view.active, view.reason, view.reserving) == ("X", True, None, 1)
    assert (view.pending_active, view.pending_inadmissible) == (1, 0)
    assert [(row.flavor, row.resource, row.nominal, row.used, row.borrowed) for row in view.usage] == [
        ("f", "gpu", 4, 8, 4)
    ]
    assert view.share == pytest.approx(4 * 1000 / 12)
    assert view.weighted_share == 334

    assert lab.engine.view(Q("x1")).pending_inadmissible == 2
    assert lab.engine.view(Q("alone")).usage[0].borrowed == 0
    assert lab.engine.view(Q("alone")).cohort is None


def test_a_view_of_a_cohort():
    view = busy().engine.cohort_view(CohortName("X"))

    assert (view.parent, view.explicit, view.cyclic) == ("R", True, False)
    assert [(row.nominal, row.subtree, row.used) for row in view.usage] == [(1, 7, 8)]
    assert view.share == pytest.approx(1 * 1000 / 12 / 2)


def test_unknown_names_are_errors():
    engine = busy().engine
    for ask in (engine.view, engine.cohort_view, engine.workloads_of, engine.running_in):
        with pytest.raises(KeyError):
            ask("unknown")


def test_the_tree_is_drawn_in_order():
    root, alone = busy().engine.tree()

    assert root.cohort.name == "R"
    assert [child.cohort.name for child in root.cohorts] == ["X"]
    assert [queue.name for queue in root.cohorts[0].cluster_queues] == ["x1", "x2"]
    assert [queue.name for queue in root.cluster_queues] == ["y"]
    assert (alone.cohort, [queue.name for queue in alone.cluster_queues]) == (None, ["alone"])


def test_running_and_waiting_lists():
    lab = busy()

    assert [(one.workload.name, one.evicted, one.preemptor) for one in lab.engine.running_in(Q("x2"))] == [
        ("x2-low", True, "x2-high")
    ]
    assert [(one.workload.name, one.position, one.parked) for one in lab.engine.workloads_of(Q("x1"))] == [
        ("x1-parked", 1, True),
        ("x1-parked-too", 2, True),
    ]
    assert [(one.workload.name, one.position) for one in lab.engine.workloads_of(Q("alone"))] == [
        ("fresh", 1),
        ("held", 0),
    ]


@pytest.mark.parametrize("policy", [CLASSICAL, REFERENCE, FAIR])
def test_a_fork_goes_its_own_way(policy):
    lab = busy(policy)
    digest = lab.engine.digest()
    fork = lab.engine.fork()

    assert fork.digest() == digest
    assert fork.check() == []
    assert fork.policy == policy

    first, second = lab.engine.run_pass(9_000_000), fork.run_pass(9_000_000)

    assert first.effects == second.effects
    assert lab.engine.digest() == fork.digest() != digest

    lab.gone("x2-low", "y-run")
    after = lab.decide()

    assert after != ()
    assert fork.is_charged(WorkloadUid("x2-low"))
    assert fork.reason_of(WorkloadUid("x2-high")).sentence() == "1 of 1 preempted workloads have not left yet"
    assert fork.check() == []


def test_a_digest_knows_every_part_of_the_state():
    lab = busy()
    known = {lab.engine.digest()}

    def differs() -> bool:
        found = lab.engine.digest()
        new = found not in known
        known.add(found)
        return new

    assert not differs()

    lab.gone("fresh")

    assert differs()

    spec = lab.engine._world.states[Q("y")].leaf.spec
    lab.apply(ClusterQueueSeen(msgspec.structs.replace(spec, stop_policy=StopPolicy.HOLD_AND_DRAIN)))

    assert differs()

    lab.decide()

    assert differs()


def test_equal_states_have_equal_digests_whatever_led_there():
    short, detour = Lab("q 4"), Lab("q 3")
    short.runs("w", "q", 2, created=1)
    detour.runs("w", "q", 1, created=1)
    detour.waits("gone", "q", 9)
    detour.decide()
    detour.gone("w", "gone")
    detour.draw("q 4")
    detour.runs("w", "q", 2, created=1)
    short.decide()
    detour.decide()

    assert short.engine.digest() == detour.engine.digest()


# -- the check finds what must never be ------------------------------------------------------------------------


def broken(lab: Lab) -> str:
    found = lab.engine.check()
    assert found
    return found[0]


def leaf(lab: Lab, name: str):
    return lab.engine._world.hierarchy.leaves[Q(name)]


def test_usage_that_nobody_holds_is_found():
    lab = busy()
    leaf(lab, "x1").cells[FR].usage += 1

    assert broken(lab) == f"x1 uses 1 of {FR}, its workloads 0"


def test_a_charge_without_a_cell_is_found():
    lab = busy()
    del leaf(lab, "x2").cells[FR]

    assert broken(lab) == f"x2 uses 0 of {FR}, its workloads 8"


def test_a_sum_that_is_wrong_is_found():
    lab = busy()
    lab.engine._world.hierarchy.cohorts[CohortName("X")].cells[FR].usage += 1

    assert broken(lab).startswith("X has {")


def test_a_height_that_is_wrong_is_found():
    lab = busy()
    lab.engine._world.hierarchy.cohorts[CohortName("X")].height += 1

    assert broken(lab) == "X has height 2, not 1"


def test_victims_out_of_order_are_found():
    lab = busy()
    leaf(lab, "x2").ranked.clear()

    assert broken(lab) == "the workloads of x2 are not in the order of victims"


def test_more_than_is_allowed_is_found_unless_facts_brought_it():
    lab = Lab("q 4\nK 3\n  p 1 borrows=1")
    lab.runs("w", "q", 6)
    lab.waits("v", "p", 2)
    lab.decide()

    assert lab.engine.check() == []

    world = lab.engine._world
    for tree in (world.states[Q("q")].leaf.tree, world.states[Q("p")].leaf.tree):
        tree.excused = False
    made = workload("x", "p", 1)
    world.workloads[made.uid] = made
    given = lab.engine.admission_of(WorkloadUid("v"))
    world.enter(Charge(made, given, leaf(lab, "p"), ((leaf(lab, "p").cells[FR], 1),), assumed=True))

    assert set(lab.engine.check()) == {
        f"q uses 6 of {FR}, more than it may",
        f"p uses 3 of {FR}, more than it may",
    }


def test_a_line_that_is_miscounted_is_found():
    lab = busy()
    lab.engine._world.states[Q("x1")].pending.active += 1

    assert broken(lab) == "x1 counts 1 active and 2 parked, not 0 and 2"


def test_a_forgotten_head_is_found():
    lab = busy()
    leaf(lab, "alone").tree.ready.clear()

    assert broken(lab) == "alone has active workloads but no head is taken from it"


def test_a_forgotten_line_is_found():
    lab = busy()
    leaf(lab, "x1").tree.parked.clear()

    assert broken(lab) == "x1 has parked workloads that nothing would wake"


def test_a_line_out_of_order_is_found():
    lab = busy()
    line = lab.engine._world.states[Q("y")].pending
    line._order = [pending.key for pending in line.in_order()][::-1]

    assert broken(lab) == "y is out of order"


def test_a_workload_in_no_place_or_in_two_is_found():
    lab = busy()
    world = lab.engine._world
    world.workloads[WorkloadUid("ghost")] = workload("ghost", "q")

    assert broken(lab) == "ghost is neither charged nor waiting, or both"

    del world.workloads[WorkloadUid("ghost")]
    del world.workloads[WorkloadUid("lost")]

    assert broken(lab) == "lost is in a place but not known"


def test_a_hold_for_nobody_is_found():
    lab = busy()
    lab.engine._world.states[Q("x2")].hold = None

    assert broken(lab) == "room is held in x2 for nobody"


@pytest.mark.parametrize(
    ("spoil", "want"),
    [
        pytest.param(lambda lab: None, [], id="nothing when all is well"),
        pytest.param(
            lambda lab: setattr(leaf(lab, "x1").cells[FR], "usage", 1),
            [("usage_is_the_sum", f"x1 uses 1 of {FR}, its workloads 0")],
            id="usage that nobody holds",
        ),
        pytest.param(
            lambda lab: setattr(lab.engine._world.states[Q("x1")].pending, "active", 7),
            [("line_in_order", "x1 counts 7 active and 2 parked, not 0 and 2")],
            id="a line that is miscounted",
        ),
    ],
)
def test_a_look_at_one_queue_finds(spoil, want):
    lab = busy()
    lab.engine.check()
    spoil(lab)

    assert lab.engine.check_queue(Q("x1"))[: len(want) or 1] == want


def test_a_look_at_one_queue_finds_its_tree_above_the_quota():
    lab = Lab("K 3\n  p 1")
    lab.runs("w", "p", 6)

    assert lab.engine.check_queue(Q("p")) == []  # a fact brought it

    leaf(lab, "p").tree.excused = False

    assert [name for name, _ in lab.engine.check_queue(Q("p"))] == ["within_quota"]


def test_a_look_at_one_queue_is_bounded(monkeypatch):
    monkeypatch.setattr(check, "SPOT_MAX", -1)
    lab = busy(REFERENCE)
    leaf(lab, "x1").cells[FR].usage = 1

    assert lab.engine.check_queue(Q("x1")) == []


def test_a_look_at_a_queue_that_is_gone_finds_nothing():
    assert busy().engine.check_queue(Q("nobody")) == []


def test_where_nobody_digests_nothing_is_remembered_of_workloads_that_went():
    lab = busy()
    for number in range(50):
        lab.waits(f"w{number}", "x1", 1)
        lab.engine.apply(WorkloadGone(WorkloadUid(f"w{number}")))

    assert lab.engine._world.touched is None


def test_a_digest_after_more_changes_than_are_noted_is_that_of_the_state(monkeypatch):
    monkeypatch.setattr(places, "TOUCHED_MAX", 3)
    noted, plain = busy(), busy()
    noted.engine.digest()
    for lab in (noted, plain):
        for number in range(8):
            lab.waits(f"w{number}", "x1", 1)
            lab.engine.apply(WorkloadGone(WorkloadUid(f"w{number}")))
        lab.waits("last", "x1", 1)

    assert noted.engine.digest() == plain.engine.digest()
    assert noted.engine._world.touched == {}
