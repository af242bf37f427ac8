"""Corners that no larger story visits by itself."""

import msgspec
import pytest

from extender.engine import engine as front_door
from extender.engine import places, state
from extender.model.amounts import UNLIMITED
from extender.model.events import (
    ClusterQueueGone,
    CohortGone,
    CohortSeen,
    LocalQueueGone,
    LocalQueueSeen,
    NamespaceSeen,
    WorkloadSeen,
)
from extender.model.names import (
    ClusterQueueName,
    CohortName,
    FlavorName,
    FlavorResource,
    LocalQueueKey,
    LocalQueueName,
    ResourceName,
    WorkloadUid,
)
from extender.model.quota import Cohort, LocalQueue
from tests.engine.drawing import CLASSICAL, FAIR, REFERENCE, REFERENCE_FAIR, TEAM, Lab


def test_a_queue_that_is_gone_before_it_was_used_leaves_nothing():
    lab = Lab()
    key = LocalQueueKey(TEAM, LocalQueueName("q"))
    lab.apply(LocalQueueSeen(LocalQueue(TEAM, key.name, ClusterQueueName("q"))), LocalQueueGone(key))
    lab.decide()

    assert lab.engine.cluster_queue_names() == []


def test_a_cohort_may_come_and_go_before_it_was_used():
    lab = Lab()
    lab.apply(CohortSeen(Cohort(CohortName("K"))), CohortGone(CohortName("K")))
    lab.decide()

    assert lab.engine.cohort_names() == []


def test_a_local_queue_that_is_one_of_two_ways_in():
    lab = Lab("q 2")
    second = LocalQueueKey(TEAM, LocalQueueName("second"))
    lab.apply(LocalQueueSeen(LocalQueue(TEAM, second.name, ClusterQueueName("q"))))
    lab.apply(LocalQueueGone(second))
    lab.waits("w", "q", 1)

    assert lab.admitted() == ["w"]


def test_a_namespace_that_changes_its_labels_disturbs_nobody_who_is_selected_anyway():
    lab = Lab("q 2")
    lab.waits("w", "q", 3)
    lab.decide()
    lab.apply(NamespaceSeen(TEAM, (("a", "b"),)))

    assert not lab.engine.has_work


def test_a_blocked_workload_may_be_told_again_or_move():
    lab = Lab("q 2")
    made = lab.waits("w", "lost", 1)
    lab.apply(WorkloadSeen(made))
    moved = msgspec.structs.replace(made, queue=LocalQueueKey(TEAM, LocalQueueName("elsewhere")))
    lab.apply(WorkloadSeen(moved))

    assert lab.why("w") == "no LocalQueue elsewhere in namespace team"

    lab.gone("w")

    assert lab.engine.check() == []


def test_shapes_that_nobody_has_any_more_are_forgotten(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(places, "_SHAPES_KEPT", 3)
    lab = Lab("q 1")
    for size in range(2, 30):
        lab.waits(f"w{size}", "q", size)
        lab.gone(f"w{size}")

    assert len(lab.engine._world.shapes) <= 5


def test_plans_are_kept_within_bounds(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(state, "_PLANS_MAX", 2)
    lab = Lab("q 1")
    for size in range(2, 9):
        lab.waits(f"w{size}", "q", size)
    lab.decide()

    assert len(lab.engine._world.states[ClusterQueueName("q")]._plans) <= 2


def test_a_pass_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(front_door, "CYCLES_MAX", 2)
    lab = Lab("q 9")
    for number in range(5):
        lab.waits(f"w{number}", "q", 1)

    assert lab.engine.run_pass(0).cycles == 2
    assert lab.engine.has_work
    assert len(lab.engine.run_pass(0).effects) == 2


def test_who_was_ready_may_be_gone_when_the_pass_comes():
    lab = Lab("K\n  q 2\n  p 2")
    lab.waits("w", "q", 1)
    lab.waits("v", "p", 1)
    lab.engine.run_pass(0)
    lab.waits("x", "q", 1)
    lab.waits("y", "p", 1)
    lab.gone("x")

    assert lab.admitted() == ["y"]


def test_a_ready_queue_may_be_gone_when_the_pass_comes():
    lab = Lab("q 2")
    lab.decide()
    lab.waits("x", "q", 1)
    lab.gone("x")
    lab.apply(LocalQueueGone(LocalQueueKey(TEAM, LocalQueueName("q"))), ClusterQueueGone(ClusterQueueName("q")))

    assert lab.decide() == ()


def test_a_parked_one_that_goes_leaves_nothing_to_wake():
    lab = Lab("K\n  q 2\n  p 2")
    lab.runs("r", "p", 4)
    lab.waits("w", "q", 1)
    lab.waits("v", "p", 1)
    lab.decide()
    lab.gone("w", "r")

    assert lab.admitted() == ["v"]


def test_the_first_flavor_may_be_the_nearest():
    lab = Lab("q red/gpu=4 blue/gpu=4")
    lab.runs("r", "q", 2, flavor="red")
    lab.runs("b", "q", 3, flavor="blue")
    lab.waits("w", "q", 3)
    lab.decide()

    assert lab.why("w") == "ClusterQueue q uses 2 of its 4 gpu of red, 1 more needed"


def test_what_is_held_of_another_resource_is_no_reason():
    lab = Lab("K f/gpu=1 f/cpu=4000\n  a f/gpu=4 reclaim=any\n  b f/gpu=0\n  c f/gpu=0 f/cpu=1000 strict")
    lab.runs("low", "b", 3)
    lab.waits("owner", "a", 4)
    lab.decide()
    lab.waits("fits", "c", {"cpu": 1000})

    assert lab.code("fits") == "NotEvaluated"

    lab.decide()
    lab.waits("first", "c", {"cpu": 9_000_000})
    lab.waits("second", "c", {"cpu": 1000})
    lab.decide()

    assert lab.code("second") == "BehindStrictHead"

    lab.waits("third", "b", 2)
    lab.decide()

    assert lab.code("third") == "ReservedForPreemptor"


def test_a_group_of_which_nothing_is_asked_is_left_out():
    lab = Lab("q red/cpu=1000 blue/gpu=1")
    lab.waits("w", "q", {"gpu": 1})
    lab.decide()

    assert lab.flavors("w") == {"gpu": "blue"}


def test_heads_that_ask_for_nothing_compete_too():
    lab = Lab("K f/cpu=1 f/gpu=1\n  a f/cpu=0 f/gpu=0\n  b f/cpu=0 f/gpu=0", REFERENCE_FAIR)
    lab.waits("w", "a", {"cpu": 1, "gpu": 0})
    lab.waits("v", "b", {"cpu": 0, "gpu": 1})

    assert sorted(lab.admitted()) == ["v", "w"]


def test_stale_usage_at_the_root_is_not_lendable():
    lab = Lab("K red/gpu=4\n  a red/gpu=0\n  b red/gpu=0 old/gpu=1", FAIR)
    lab.runs("stale", "b", 3, flavor="old")
    lab.decide()
    lab.draw("K red/gpu=4\n  b red/gpu=0")
    lab.runs("r", "a", 2, flavor="red")
    lab.decide()

    assert FlavorResource(FlavorName("old"), ResourceName("gpu")) in lab.engine._world.hierarchy.cohorts["K"].cells
    assert lab.engine.view(ClusterQueueName("a")).share == 500.0


def test_unlimited_quota_is_never_exceeded():
    lab = Lab(f"K {UNLIMITED}\n  q 0")
    lab.waits("w", "q", 10**15)

    assert lab.admitted() == ["w"]
    assert lab.engine.check() == []


def test_an_evicted_one_of_higher_priority_is_no_candidate():
    lab = Lab("q 4 within=lower", REFERENCE)
    high = lab.runs("high", "q", 2, priority=9)
    lab.runs("low", "q", 2)
    lab.apply(WorkloadSeen(msgspec.structs.replace(high, evicted=True)))
    lab.waits("mid", "q", 2, priority=5)

    assert lab.victims() == {"low": "InClusterQueue"}


def test_a_strict_preemptor_of_the_reference_has_no_place_of_its_own():
    lab = Lab("q 2 strict within=lower", REFERENCE)
    lab.runs("low", "q", 2)
    lab.waits("mid", "q", 2, priority=1)
    lab.decide()
    lab.waits("high", "q", 2, priority=9)

    assert [one.workload.name for one in lab.engine.workloads_of(ClusterQueueName("q"))] == ["high", "mid"]


def test_the_sticky_one_is_the_first_in_line():
    lab = Lab("q 4 within=lower strict", CLASSICAL)
    lab.runs("low", "q", 4)
    lab.waits("mid", "q", 4, priority=1)
    lab.decide()
    lab.waits("low-too", "q", 1)
    line = lab.engine._world.states[ClusterQueueName("q")].pending

    assert line.position(lab.engine._world.pending[WorkloadUid("mid")]) == 1
    assert line.position(lab.engine._world.pending[WorkloadUid("low-too")]) == 2


def test_waking_leaves_alone_who_was_not_parked():
    lab = Lab("K\n  q 4 within=lower\n  p 1")
    lab.runs("low", "q", 4)
    lab.runs("other", "p", 1)
    lab.waits("mid", "q", 4, priority=1)
    lab.waits("never", "q", 99)
    lab.decide()
    lab.engine._world.states[ClusterQueueName("q")].pending.sticky = None
    lab.waits("parked", "q", 98, priority=7)
    lab.decide()
    lab.gone("other")

    assert lab.decide() == ()
    assert (
        lab.engine.view(ClusterQueueName("q")).pending_active
        + lab.engine.view(ClusterQueueName("q")).pending_inadmissible
        == 3
    )


@pytest.mark.parametrize(
    ("others", "want"),
    [
        pytest.param([], "spot", id="in the next cycle the scan goes on"),
        pytest.param(["early"], "on-demand", id="it begins anew once something left its queue in a later cycle"),
    ],
)
def test_a_scan_goes_on_where_it_stopped(others, want):
    lab = Lab("K 1\n  q on-demand/gpu=2 spot/gpu=2 stop_at_preempting strict\n  p on-demand/gpu=0", REFERENCE)
    lab.runs("early", "q", 2, flavor="on-demand")
    lab.runs("late", "q", 2, flavor="spot")
    lab.waits("w", "q", 2)
    lab.decide()
    pending = lab.engine._world.pending[WorkloadUid("w")]
    state_of = lab.engine._world.states[ClusterQueueName("q")]
    pending.progress = ((0,),)
    pending.progress_cycle = lab.engine._cycle - (5 if others else 0)
    pending.progress_generation = state_of.leaf.generation
    lab.gone("early", "late")

    lab.decide()

    assert lab.flavors("w") == {"gpu": want}


def test_the_heads_of_a_large_tree_are_assessed_step_by_step():
    queues = 2 * front_door.NOMINATED_PER_STEP + 5
    lab = Lab("K 40\n" + "\n".join(f"  q{number} 0" for number in range(queues)))
    for number in range(queues):
        lab.waits(f"w{number}", f"q{number}", 1)

    steps = lab.engine.pass_in_steps(0)
    assert [next(steps), next(steps)] == [None, None]
    assert lab.engine.admission_of("w0") is None  # nothing is decided before all have been assessed
    *_, result = steps

    assert result is not None
    assert len(result.effects) == 40
    assert len(result.looked) == queues - 40
