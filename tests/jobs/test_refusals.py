"""What the API server does not accept about a Job is asked for again in a while: never at once, never not at all."""

import pytest

from extender.clockwork import Clockwork
from extender.engine.engine import Engine
from extender.model.effects import Evict, EvictionReason
from extender.model.jobs import GrowJob
from extender.model.names import WorkloadUid
from extender.model.policy import Policy
from extender.pods.timers import Times
from extender.teller import Teller
from tests.jobs.build import UID, Play, job, told
from tests.sim.replica import Meter

DENIED = "invalid: 403 not today"


class Desk:
    """A clockwork over the book of Jobs, and what it has handed to the writer."""

    def __init__(self):
        self.play = Play()
        self.submitted = []
        self.told = []
        engine = Engine(Policy())
        teller = Teller(engine=engine, books=self.play.shelf, submit=self.submitted.append, gauges=Meter())
        self.clockwork = Clockwork(
            books=self.play.shelf,
            teller=teller,
            times=Times(),
            tell=self.told.append,
            submit=self.submitted.append,
            stopped=lambda uid, why, message: None,
        )

    def stop(self):
        (stop, _) = self.play.shelf.evict(Evict(UID, None, EvictionReason.IN_CLUSTER_QUEUE, "room"))
        return stop


def test_a_start_that_is_not_accepted_is_tried_again_though_the_job_does_not_change():
    desk = Desk()
    desk.play.sees(job())
    desk.clockwork.refused_job(desk.play.starts(), DENIED, 0)
    held = told(desk.told[1:]).held
    desk.told.clear()
    desk.clockwork.pass_time(999)
    before = list(desk.told)
    desk.clockwork.pass_time(1_000)

    assert held is not None
    assert before == []
    assert told(desk.told).held is None


def test_a_stop_that_is_not_accepted_waits_longer_each_time():
    desk = Desk()
    desk.play.runs()
    waits, now_ms = [], 0
    for _ in range(4):
        desk.clockwork.refused_job(desk.stop(), DENIED, now_ms)
        desk.clockwork.submit(desk.stop())
        began_ms = now_ms
        while not desk.submitted:
            now_ms += 500
            desk.clockwork.pass_time(now_ms)
        desk.submitted.clear()
        waits.append(now_ms - began_ms)

    assert waits == [1_000, 2_000, 4_000, 8_000]


@pytest.mark.parametrize("cause", ["conflict: changed", "fenced: not the leader"])
def test_a_stop_that_another_write_stopped_is_sent_when_it_is_chosen_again(cause):
    desk = Desk()
    desk.play.runs()
    desk.clockwork.refused_job(desk.stop(), cause, 0)
    desk.clockwork.submit(desk.stop())

    assert len(desk.submitted) == 1


def test_a_growth_that_rests_does_not_take_the_place_of_a_stop_that_rests():
    desk = Desk()
    desk.play.runs()
    stop = desk.stop()
    grow = GrowJob(WorkloadUid("growth:u1"), stop.uid, stop.ref, stop.admission, "more")
    desk.clockwork.refused_job(stop, DENIED, 0)
    desk.clockwork.refused_job(grow, DENIED, 0)
    desk.clockwork.submit(stop)
    desk.clockwork.submit(grow)
    desk.clockwork.pass_time(1_000)

    assert sorted(desk.submitted, key=lambda one: one.workload) == [grow, stop]


def test_what_rests_does_not_happen_when_another_leads():
    desk = Desk()
    desk.play.runs()
    desk.clockwork.refused_job(desk.stop(), DENIED, 0)
    desk.clockwork.submit(desk.stop())
    desk.clockwork.give_up()
    desk.clockwork.pass_time(100_000)

    assert desk.submitted == []
