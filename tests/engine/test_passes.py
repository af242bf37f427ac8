"""Within a pass nobody was told yet: what it decided for one that is displaced is decided anew."""

from extender.engine.passes import PassLog
from extender.model.effects import Admit, Evict, EvictionReason
from extender.model.names import WorkloadUid
from tests.engine.drawing import FAIR, Lab

DISPLACED = """
K 2
  a 2 within=lower reclaim=any
  b 2 reclaim=any
"""


def test_nobody_stops_for_one_that_another_displaced_in_the_same_pass():
    lab = Lab(DISPLACED, FAIR)
    lab.runs("low", "a", 1)
    lab.waits("high", "a", 6, priority=10)
    lab.waits("middle", "a", 4, priority=5)
    lab.waits("wide", "b", 5)
    effects = lab.decide()

    assert [(effect.uid, effect.preemptor) for effect in effects if isinstance(effect, Evict)] == [("low", "high")]
    assert not any(isinstance(effect, Admit) for effect in effects)


def test_nobody_stops_if_the_one_that_displaced_the_preemptor_gets_in_at_once():
    lab = Lab(DISPLACED, FAIR)
    lab.runs("low", "a", 1)
    lab.waits("high", "a", 5, priority=10)
    lab.waits("middle", "a", 4, priority=5)
    lab.waits("wide", "b", 5)
    effects = lab.decide()

    assert [effect.uid for effect in effects] == ["high"]


def test_nobody_stops_for_one_that_waits_for_another_flavor():
    lab = Lab(f"{DISPLACED}  c red/cpu=2 within=lower\n", FAIR)
    lab.runs("red-low", "c", {"cpu": 2}, flavor="red")
    lab.waits("red-high", "c", {"cpu": 2}, priority=1)
    lab.runs("low", "a", 1)
    lab.waits("high", "a", 5, priority=10)
    lab.waits("middle", "a", 4, priority=5)
    lab.waits("wide", "b", 5)
    effects = lab.decide()

    assert {effect.uid: effect.preemptor for effect in effects if isinstance(effect, Evict)} == {"red-low": "red-high"}


def test_a_workload_is_spared_once_in_a_pass():
    log = PassLog(0)
    told = Evict(WorkloadUid("low"), WorkloadUid("high"), EvictionReason.IN_CLUSTER_QUEUE, "")
    log.evict(told)

    assert log.preempted() == [("low", "high")]

    log.spare(told.uid)
    log.evict(told)

    assert log.preempted() == []
    assert log.effects() == (told,)
