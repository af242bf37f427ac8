"""What time does to workloads and to writes that were refused."""

import pytest

from extender.model.effects import AdoptPod, EvictPod, UngatePod
from extender.model.pods import GATE, Owner
from extender.pods.timers import ReadyTimes, Times
from tests.app.desk import Desk, conditions, evictions, of, told

READY = Times(ready=ReadyTimes(timeout_ms=10_000, recovery_ms=5_000, backoff_base_ms=20_000, limit=1))
SET = Owner("ReplicaSet", "web", "rs-uid")


def desk(times: Times = Times()) -> Desk:  # noqa: B008 - frozen
    made = Desk(times=times)
    made.queue()
    return made


@pytest.mark.parametrize("cause", ["invalid: 422 no", "expired: gave up", "gone: 404", "dropped: too many wait"])
async def test_a_write_that_is_not_accepted_waits_and_says_so(cause):
    at = desk()
    at.submit("p")
    (write,) = of(at.turn(), UngatePod)
    at.driver.refused(write, cause)

    first = at.turn()
    assert of(first, UngatePod) == []
    assert conditions(first)["p"][0] == "WriteRetry"
    assert of(at.turn(after_ms=999), UngatePod) == []
    assert len(of(at.turn(after_ms=1), UngatePod)) == 1


async def test_a_conflict_is_no_reason_to_wait():
    at = desk()
    at.submit("p")
    (write,) = of(at.turn(), UngatePod)
    at.driver.refused(write, "conflict: 409")
    at.change("p", resource_version="8")

    assert len(of(at.turn(), UngatePod)) == 1


async def test_one_member_that_is_not_accepted_does_not_make_a_busy_loop():
    at = desk()
    at.submit("a", "b", group="team", group_total=2)
    a, b = of(at.turn(), UngatePod)
    at.change("a", gates=(), admission=a.admission)
    at.driver.refused(b, "invalid: 422 no")

    assert of(at.turn(), UngatePod) == []
    assert [write.name for write in of(at.turn(after_ms=1_000), UngatePod)] == ["b"]


async def test_an_eviction_that_is_not_accepted_is_decided_again_later():
    at = desk()
    at.submit("low", requests=(("nvidia.com/gpu", 2),))
    at.run()
    at.submit("high", priority=5)
    (write,) = of(at.turn(), EvictPod)
    at.driver.refused(write, "invalid: 403 no")

    assert of(at.turn(), EvictPod) == []
    assert len(of(at.turn(after_ms=1_000), EvictPod)) == 1


async def test_what_was_put_off_is_not_forgotten_with_the_lease():
    at = desk()
    at.submit("low", requests=(("nvidia.com/gpu", 2),))
    at.run()
    at.submit("high", priority=5)
    (write,) = of(at.turn(), EvictPod)
    at.driver.refused(write, "invalid: 403 no")
    at.driver.lead(False)
    at.driver.lead(True)

    assert len(of(at.turn(), EvictPod)) == 1


async def test_a_pod_that_could_not_be_taken_in_is_tried_again():
    at = desk()
    at.submit("p", gates=(), managed=False)
    (write,) = of(at.turn(), AdoptPod)
    at.driver.refused(write, "expired: gave up")

    assert of(at.turn(), AdoptPod) == []
    assert of(at.turn(after_ms=1_000), AdoptPod) == [write]


async def test_a_group_that_does_not_complete_is_told_once():
    at = desk()
    at.submit("a", group="team", group_total=2)
    at.turn()

    (event,) = told(at.turn(after_ms=300_000))
    assert event == (
        "a",
        "PodGroupTimeout",
        "1 of 2 pods of group team exist, and no other has come for 5 min; it holds no quota and waits on",
    )
    assert told(at.turn(after_ms=300_000)) == []


async def test_what_does_not_get_ready_is_evicted_and_its_replacement_waits():
    at = desk(READY)
    at.submit("a", owner=SET)
    at.run(ready=False)
    at.submit("other")
    at.turn()

    effects = at.turn(after_ms=10_000)
    assert evictions(effects) == [("a", "PodsReadyTimeout", "its pods were not ready within 10 s (attempt 1)")]
    assert told(effects)[0][:2] == ("a", "EvictedDueToPodsReadyTimeout")
    assert at.meter.evictions == [("main-cq", "PodsReadyTimeout", None)]
    at.gone("a")
    at.submit("b", owner=SET)
    reason, message = conditions(at.turn())["b"]
    assert (reason, message[:13]) == ("BackOff", "attempt 2 at ")
    assert at.run() == []

    at.now_ms += 20_000
    assert at.run(ready=False) == ["b"]
    at.turn()
    assert len(evictions(at.turn(after_ms=10_000))) == 1
    at.gone("b")
    at.submit("c", owner=SET)
    assert conditions(at.turn())["c"][1].startswith("stopped by waitForPodsReady after 2 attempts")


async def test_once_ready_attempts_are_counted_anew():
    at = desk(READY)
    at.submit("a", owner=SET)
    at.run(ready=False)
    at.turn()
    at.turn(after_ms=10_000)
    at.gone("a")
    at.submit("b", owner=SET)
    at.now_ms += 20_000
    at.run(ready=True)
    at.turn()
    at.change("b", ready=False)
    at.turn()

    assert evictions(at.turn(after_ms=5_000))[0][2] == "its pods were not again ready within 5 s (attempt 1)"


async def test_a_victim_of_time_is_not_evicted_again_for_somebody_else():
    at = desk(READY)
    at.submit("low", requests=(("nvidia.com/gpu", 2),))
    at.run(ready=False)
    at.turn()
    assert len(evictions(at.turn(after_ms=10_000))) == 1
    at.submit("high", priority=5)

    assert evictions(at.turn()) == []
    at.gone("low")
    assert at.run() == ["high"]


@pytest.mark.parametrize("grouped", [False, True], ids=["a pod on its own", "a group"])
async def test_who_ran_long_enough_is_stopped(*, grouped: bool):
    at = desk()
    group = {"group": "team", "group_total": 1} if grouped else {}
    at.submit("a", run_s_max=60, owner=SET, **group)
    at.run()
    at.turn(after_ms=59_000)
    ((name, reason, message),) = evictions(at.turn(after_ms=1_000))
    at.gone("a")
    at.submit("b", run_s_max=60, owner=SET, **group)

    assert (name, message) == ("a", "its maximum execution time of 60 s is over")
    assert reason == "DeactivatedDueToMaximumExecutionTimeExceeded"
    assert at.run() == ([] if grouped else ["b"])


async def test_a_group_that_was_stopped_for_good_may_come_back_when_it_was_away():
    at = desk()
    team = {"group": "team", "group_total": 1, "run_s_max": 60}
    at.submit("a", **team)
    at.run()
    at.turn(after_ms=60_000)
    at.gone("a")
    at.turn()
    at.turn(after_ms=60_000)
    at.submit("b", gates=(GATE,), **team)

    assert at.run() == ["b"]
