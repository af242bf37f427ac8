"""Whatever a pod's life was, nothing is remembered of it once it is gone and time has passed."""

from extender.engine import queues
from extender.model.effects import EvictPod, SetPodCondition, UngatePod
from extender.pods import conditions
from extender.pods.timers import ReadyTimes, Times
from tests.app.desk import Desk, of
from tests.support.held import held

DAY_MS = 86_400_000


def run_and_end(at: Desk, name: str) -> list[str]:
    """One that gets in at once and ends."""
    at.submit(name)
    at.run()
    at.change(name, phase="Succeeded")
    return [name]


def wait_and_be_told(at: Desk, name: str) -> list[str]:
    """One that waits behind two others, is told so, gets in and is told that."""
    names = [f"{name}-{number}" for number in range(3)]
    at.submit(*names)
    at.run()
    for write in of(at.turn(after_ms=5_000), SetPodCondition):
        at.change(write.name, admitted_reason=write.reason, admitted_condition=write.message)
    at.gone(names[0])
    at.run()
    return names[1:]


def push_away(at: Desk, name: str) -> list[str]:
    """One that takes the room of another."""
    at.submit(f"{name}-low", requests=(("nvidia.com/gpu", 2),))
    at.run()
    at.submit(f"{name}-high", requests=(("nvidia.com/gpu", 2),), priority=100)
    for write in of(at.turn(), EvictPod):
        at.driver.done(write)
        at.gone(write.name)
    at.run()
    return [f"{name}-high"]


def go_together(at: Desk, name: str) -> list[str]:
    """A group of two, and one that never was complete."""
    at.submit(f"{name}-a", f"{name}-b", group=name, group_total=2)
    at.submit(f"{name}-c", group=f"{name}-half", group_total=2)
    at.run()
    at.turn(after_ms=5_000)
    return [f"{name}-a", f"{name}-b", f"{name}-c"]


def be_refused(at: Desk, name: str) -> list[str]:
    """One whose admission somebody's policy does not accept."""
    at.submit(name)
    for write in of(at.turn(), UngatePod):
        at.driver.refused(write, "invalid: 422 no")
    at.turn(after_ms=100)
    return [name]


def not_get_ready(at: Desk, name: str) -> list[str]:
    """One that does not get ready in time."""
    at.submit(name)
    at.run(ready=False)
    for write in of(at.turn(after_ms=61_000), EvictPod):
        at.driver.done(write)
    return [name]


def be_lost(at: Desk, name: str) -> list[str]:
    """One that names no queue that there is."""
    at.submit(name, queue="nowhere")
    at.turn()
    return [name]


LIVES = (run_and_end, wait_and_be_told, push_away, go_together, be_refused, not_get_ready, be_lost)


def rounds(at: Desk, numbers: range) -> dict[str, int]:
    """So many lives of each kind; what is held a day later."""
    for number in numbers:
        for live in LIVES:
            at.gone(*live(at, f"{live.__name__.replace('_', '-')}-{number}"))
            at.turn()
    for _ in range(200):
        at.turn(after_ms=DAY_MS // 100)
    return held(at.driver)


async def test_nothing_piles_up():
    at = Desk(times=Times(ready=ReadyTimes(timeout_ms=60_000, recovery_ms=60_000)))
    at.queue()

    few, many = rounds(at, range(10)), rounds(at, range(10, 60))

    ours = {way: count for way, count in many.items() if "Meter" not in way}  # the double's own notes
    assert {way: (few.get(way, 0), count) for way, count in ours.items() if count > few.get(way, 0) + 5} == {}


def watched(at: Desk, leader: Desk, numbers: range) -> dict[str, int]:
    """What a follower holds after it has seen what a leader did."""
    for number in numbers:
        for live in LIVES:
            leader.gone(*live(leader, f"{live.__name__.replace('_', '-')}-{number}"))
            leader.turn()
    for _ in range(200):
        leader.turn(after_ms=DAY_MS // 100)
        at.now_ms = leader.now_ms
    return held(at.driver)


async def test_nothing_piles_up_in_a_follower(monkeypatch):
    for module in (conditions, queues):
        monkeypatch.setattr(module, "STALE_MAX", 4)
    leader, at = Desk(times=Times(ready=ReadyTimes(timeout_ms=60_000, recovery_ms=60_000))), Desk()
    at.driver.lead(False)
    take = leader.driver.take

    def both(events):
        seen = list(events)
        take(seen)
        at.driver.take(seen)

    monkeypatch.setattr(leader.driver, "take", both)
    leader.queue()

    few, many = watched(at, leader, range(10)), watched(at, leader, range(10, 60))

    ours = {way: count for way, count in many.items() if "Meter" not in way}
    # Heaps keep stale entries up to a bound, six times as many lives would leave six times as many.
    assert {way: (few.get(way, 0), count) for way, count in ours.items() if count > 2 * few.get(way, 0) + 5} == {}
