"""Leader election on a clock of our own: who leads, who may write, and who waits."""

import asyncio

import pytest

from extender.model.errors import Unreachable, UserError
from tests.kube.office import MICRO_TIME, candidate, step


async def test_the_first_one_creates_the_lease_and_leads(store, clock):
    told = []
    one = candidate(store, clock, "one", told)

    await step(one)

    assert one.is_leader()
    assert told == [True]
    assert store.spec["holderIdentity"] == "one"
    assert store.spec["leaseDurationSeconds"] == 15
    assert store.spec["leaseTransitions"] == 0
    assert MICRO_TIME.fullmatch(store.spec["renewTime"])
    assert store.spec["renewTime"] == "2026-03-01T08:30:15.000000Z"  # six digits also where all are noughts


async def test_the_second_one_waits_while_the_first_renews(store, clock):
    one, two = candidate(store, clock, "one"), candidate(store, clock, "two")
    for _ in range(30):
        await step(one, two)
        clock.forward(2.2)

    assert (one.is_leader(), two.is_leader(), two.holder) == (True, False, "one")


async def test_a_leader_that_is_gone_is_followed_after_the_leases_duration(store, clock):
    one, two = candidate(store, clock, "one"), candidate(store, clock, "two")
    await step(one, two)
    led = []
    for _ in range(9):
        clock.forward(2.0)
        await step(two)
        led.append(two.is_leader())

    assert led == [*[False] * 7, True, True]  # 15 s after it last saw the record change
    assert store.spec["leaseTransitions"] == 1
    assert two.transitions == 1


async def test_what_keeps_us_from_the_lease_is_reported_once_and_its_end_too(store, clock):
    told = []
    one = candidate(store, clock, "one", report=told.append)
    for down in (False, True, True, False, False):
        store.down = down
        await step(one)
        clock.forward(2.0)

    assert told == ["no route", ""]


async def test_nobody_ever_leads_beside_another(store, clock):
    one, two = candidate(store, clock, "one"), candidate(store, clock, "two")
    for turn in range(200):
        store.down = turn % 37 > 20
        if turn % 13 < 7:
            await step(one)
        await step(two)
        clock.forward(0.7)

        assert not (one.is_leader() and two.is_leader())


async def test_a_paused_leader_finds_its_fence_closed_at_once(store, clock):
    told = []
    one, two = candidate(store, clock, "one", told), candidate(store, clock, "two")
    await step(one, two)
    clock.forward(60)  # SIGSTOP; nothing of ours ran

    assert not one.is_leader()
    await step(two)
    await step(one)

    assert (one.is_leader(), two.is_leader()) == (False, True)
    assert told == [True, False]


async def test_a_leader_paused_in_the_middle_of_a_renewal_does_not_lead(store, clock):
    one = candidate(store, clock, "one")
    await step(one)
    clock.forward(2)
    store.hold = lambda: clock.forward(30)  # the write was done, the answer is read half a minute later

    await step(one)

    assert not one.is_leader()


async def test_the_fence_counts_from_the_start_of_a_renewal(store, clock):
    one = candidate(store, clock, "one")
    store.hold = lambda: clock.forward(4)
    await step(one)
    clock.forward(5.9)
    before = one.is_leader()
    clock.forward(0.2)

    assert (before, one.is_leader()) == (True, False)


async def test_a_leader_that_cannot_renew_gives_up_in_time(store, clock):
    told = []
    one = candidate(store, clock, "one", told)
    await step(one)
    store.down = True
    led = []
    for _ in range(6):
        clock.forward(2)
        await step(one)
        led.append(one.is_leader())

    assert led == [True, True, True, True, False, False]
    assert told == [True, False]
    assert one.problem == "no route"


async def test_no_request_outlives_the_right_to_lead(store, clock):
    one = candidate(store, clock, "one")
    await step(one)
    store.down = True
    for _ in range(4):
        clock.forward(2)
        await step(one)

    assert store.timeouts == [5.0, 5.0, 5.0, 5.0, 4.0, 2.0]


async def test_a_renewal_whose_answer_is_lost_is_noticed_as_ours(store, clock):
    one = candidate(store, clock, "one")
    await step(one)
    store.lose_answers = True
    clock.forward(2)
    await step(one)
    store.lose_answers = False
    clock.forward(2)
    await step(one)

    assert one.is_leader()
    assert store.spec["leaseTransitions"] == 0


async def test_somebody_else_took_it_by_hand(store, clock):
    told = []
    one = candidate(store, clock, "one", told)
    await step(one)
    store.version += 1
    store.lease["metadata"]["resourceVersion"] = str(store.version)
    store.lease["spec"]["holderIdentity"] = "admin"

    await step(one)

    assert (one.is_leader(), one.holder, told) == (False, "admin", [True, False])


async def test_two_that_start_together_do_not_both_lead(store, clock):
    one, two = candidate(store, clock, "one"), candidate(store, clock, "two")

    await asyncio.gather(one._step(), two._step())

    assert sorted([one.is_leader(), two.is_leader()]) == [False, True]


async def test_labels_and_fields_of_others_stay(store, clock):
    store.lease = {
        "metadata": {"name": "cohort-extender", "resourceVersion": "0", "labels": {"a": "b"}},
        "spec": {"holderIdentity": "", "strategy": "OldestEmulationVersion"},
    }
    one = candidate(store, clock, "one")

    await step(one)

    assert one.is_leader()
    assert store.lease["metadata"]["labels"] == {"a": "b"}
    assert store.spec["strategy"] == "OldestEmulationVersion"


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(UserError("forbidden", status=403), id="not allowed"),
        pytest.param(Unreachable("no route"), id="unreachable"),
    ],
)
async def test_a_failure_to_read_is_told_and_tried_again(store, clock, error):
    one = candidate(store, clock, "one")
    real = store.get

    async def fails(path, *, timeout_s=None):
        raise error

    store.get = fails
    await step(one)
    problem = one.problem
    store.get = real
    await step(one)

    assert problem == str(error)
    assert (one.is_leader(), one.problem) == (True, "")


async def test_a_lease_that_cannot_be_read_does_not_stop_us(store, clock):
    one = candidate(store, clock, "one")
    store.lease = {"metadata": [], "spec": 3}
    await step(one)
    problem = one.problem
    store.lease = None
    await step(one)

    assert "cannot be read" in problem
    assert one.is_leader()


async def test_a_wall_clock_that_jumps_changes_nothing(store, clock):
    one, two = candidate(store, clock, "one"), candidate(store, clock, "two")
    for jump in (0.0, 1e6, -1e6):
        one._wall_clock = two._wall_clock = lambda jump=jump: 1772353815.0 + jump
        await step(one, two)
        clock.forward(2)

    assert (one.is_leader(), two.is_leader()) == (True, False)
