"""How a term ends: by release, by time, by somebody's hand."""

import asyncio
import contextlib

import pytest

from extender.kube.lease import Leader
from tests.kube.office import candidate, step


async def run_until_led(leader):
    task = asyncio.create_task(leader.run())
    while not leader.is_leader():  # noqa: ASYNC110 - the fake clock moves by itself
        await asyncio.sleep(0)
    return task


async def end(task):
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_the_lease_is_released_at_the_end_and_the_next_need_not_wait(store, clock):
    told = []
    one, two = candidate(store, clock, "one", told), candidate(store, clock, "two")
    task = await run_until_led(one)
    await step(two)
    await end(task)
    await one.release()

    assert (store.spec["holderIdentity"], store.spec["leaseDurationSeconds"]) == ("", 1)
    assert (one.is_leader(), told) == (False, [True, False])

    await step(two)

    assert two.is_leader()
    assert (store.spec["leaseDurationSeconds"], store.spec["leaseTransitions"]) == (15, 1)


async def test_a_follower_releases_nothing(store, clock):
    one, two = candidate(store, clock, "one"), candidate(store, clock, "two")
    await step(one)
    task = asyncio.create_task(two.run())
    await asyncio.sleep(0)
    await end(task)
    await two.release()

    assert store.spec["holderIdentity"] == "one"


async def test_a_release_that_fails_ends_all_the_same(store, clock):
    one = candidate(store, clock, "one")
    task = await run_until_led(one)
    store.down = True
    await end(task)
    await one.release()

    assert not one.is_leader()
    assert one.problem == "the lease was not released: no route"


async def test_a_leader_that_ends_without_a_release_keeps_the_lease_until_it_runs_out(store, clock):
    one, two = candidate(store, clock, "one"), candidate(store, clock, "two")
    task = await run_until_led(one)
    await end(task)  # a write of it may still be on its way
    led = []
    for _ in range(9):
        await step(two)
        led.append(two.is_leader())
        clock.forward(2.0)

    assert led == [*[False] * 8, True]


async def test_the_end_of_a_term_is_told_when_it_comes_and_not_at_the_next_attempt(store, clock):
    told = []
    one = Leader(
        store,
        identity="one",
        namespace="cohort-system",
        name="cohort-extender",
        on_change=lambda leads: told.append((leads, clock())),
        clock=clock,
        wall_clock=lambda: 1772353815.0,
        sleep=clock.sleep,
        randomness=lambda: 0.5,
    )
    began_s = clock()
    task = await run_until_led(one)
    store.down = True
    while len(told) < 2:  # noqa: ASYNC110 - the fake clock moves by itself
        await asyncio.sleep(0)
    await end(task)

    assert told == [(True, began_s), (False, pytest.approx(began_s + 10))]


async def test_a_term_that_ran_out_during_a_renewal_ends_before_the_next_begins(store, clock):
    told = []
    one = candidate(store, clock, "one", told)
    await step(one)
    clock.forward(9)
    store.version += 1  # somebody labels the lease: the renewal meets a conflict, and is done again after a look
    store.lease["metadata"]["resourceVersion"] = str(store.version)
    real = store.get

    async def slowly(path, *, timeout_s=None):
        clock.forward(3)
        return await real(path, timeout_s=timeout_s)

    store.get = slowly
    await step(one)

    assert one.is_leader()
    assert told == [True, False, True]


async def test_a_lease_that_is_deleted_is_written_anew_by_its_holder_alone(store, clock):
    told = []
    one, two = candidate(store, clock, "one", told), candidate(store, clock, "two")
    await step(one, two)
    store.lease = None
    clock.forward(1)
    await step(two)
    taken = two.is_leader()
    await step(one)

    assert not taken
    assert one.is_leader()
    assert told == [True]
    assert store.spec["holderIdentity"] == "one"


async def test_a_lease_that_is_deleted_and_not_written_anew_is_taken_when_it_would_have_run_out(store, clock):
    one, two = candidate(store, clock, "one"), candidate(store, clock, "two")
    await step(one, two)
    store.lease = None
    led = []
    for _ in range(9):
        clock.forward(2.0)
        await step(two)
        led.append(two.is_leader())

    assert led == [*[False] * 7, True, True]


async def test_attempts_are_spread(store, clock):
    one = candidate(store, clock, "one")
    task = await run_until_led(one)
    await end(task)

    assert clock.slept[0] == pytest.approx(2.2)
