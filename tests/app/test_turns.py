"""A turn that lets others have the event loop decides as if it had never been interrupted."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import pytest

from extender import driver
from extender.model.effects import UngatePod
from extender.model.names import LocalQueueName
from tests.app.desk import Desk, of
from tests.pods.build import pod

PODS = 600


@pytest.fixture
def crowd(monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Many pods that all fit, and a driver that lets go of the loop at every step."""
    monkeypatch.setattr(driver, "STEP_S", -1.0)
    at = Desk()
    at.queue(gpus=PODS)
    at.submit(*(f"p{number:04}" for number in range(PODS)))
    return at


@contextlib.asynccontextmanager
async def running(at: Desk) -> AsyncIterator[None]:
    task = asyncio.create_task(at.driver.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def until_written(at: Desk, count: int) -> None:
    async with asyncio.timeout(5):
        while len(of(at.effects, UngatePod)) < count:  # noqa: ASYNC110 - the driver tells nobody
            await asyncio.sleep(0)


async def test_others_have_the_loop_while_many_are_admitted(crowd: Desk):
    rounds = 0
    async with running(crowd):
        await until_written(crowd, 1)
        while len(of(crowd.effects, UngatePod)) < PODS:
            rounds += 1
            await asyncio.sleep(0)

    assert rounds >= PODS - 10
    assert [write.name for write in of(crowd.effects, UngatePod)] == [f"p{number:04}" for number in range(PODS)]


async def test_a_step_is_short_and_so_is_what_it_lets_go_for():
    at = Desk()
    at.queue(gpus=PODS)
    at.submit(*(f"p{number:04}" for number in range(PODS)))
    turns = []
    async with running(at):
        while len(of(at.effects, UngatePod)) < PODS:
            turns.append(time.thread_time())
            await asyncio.sleep(0)
    whole = turns[-1] - turns[0]

    assert len(turns) > whole / driver.STEP_S / 10  # it lets go some times a step's length, however slow the machine


async def test_facts_in_the_middle_of_a_turn_count_at_its_end(crowd: Desk):
    async with running(crowd):
        await until_written(crowd, 1)
        crowd.gone(f"p{PODS - 1:04}")
        known = crowd.driver.books.pod(f"p{PODS - 1:04}")
        await until_written(crowd, PODS)
        async with asyncio.timeout(5):
            while crowd.driver.books.pod(f"p{PODS - 1:04}") is not None:  # noqa: ASYNC110 - see above
                await asyncio.sleep(0)

    assert known is not None
    assert len(of(crowd.effects, UngatePod)) == PODS


async def test_facts_in_every_round_do_not_put_off_the_next_turn(crowd: Desk):
    news = 0
    async with running(crowd):
        await until_written(crowd, 1)
        crowd.submit("late")
        crowd.queue(gpus=PODS + 1)
        async with asyncio.timeout(5):
            while len(of(crowd.effects, UngatePod)) <= PODS:
                news += 1
                async with crowd.driver._turns:
                    crowd.change("p0001", resource_version=str(news))
        changed = crowd.driver.books.pod("p0001")

    assert of(crowd.effects, UngatePod)[-1].name == "late"
    assert changed is not None
    assert int(changed.resource_version) > news - PODS  # in order, and not far behind


async def test_a_refusal_in_the_middle_of_a_turn_counts_at_its_end(crowd: Desk):
    async with running(crowd):
        await until_written(crowd, 1)
        (first, *_) = of(crowd.effects, UngatePod)
        crowd.driver.refused(first, "conflict: 409")
        crowd.change("p0000", resource_version="8")
        await until_written(crowd, PODS + 1)

    assert [write.name for write in of(crowd.effects, UngatePod)][PODS:] == ["p0000"]
    assert of(crowd.effects, UngatePod)[-1].resource_version == "8"


async def test_who_loses_the_lease_in_the_middle_of_a_turn_ends_it_first(crowd: Desk):
    async with running(crowd):
        await until_written(crowd, 1)
        crowd.driver.lead(False)
        written = len(of(crowd.effects, UngatePod))
        crowd.show(pod("late", queue=LocalQueueName("main")))
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    assert written == PODS  # the caller recalls them; what is decided later would be sent in another's term
    assert len(of(crowd.effects, UngatePod)) == PODS
    assert crowd.driver.books.pod("late") is not None


async def test_a_write_that_is_refused_when_it_is_handed_over_does_not_wait():
    at = Desk()
    at.queue(gpus=2)
    at.submit("a", "b")
    at.driver._clockwork._submit = lambda effect: at.driver.refused(effect, "dropped: too many wait")
    at.turn()

    assert [at.driver.engine.admission_of(at.driver.books.workload_of(one)) for one in at.pods.values()] == [None, None]
