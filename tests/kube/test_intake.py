"""What the watchers of one loop do does not add up: one slice a round of the loop, a few lists at a time."""

import asyncio

from extender.kube.resources import nodes, pods
from extender.kube.watch import OPENED_AT_ONCE_MAX, SLICE_ITEMS_MAX, Intake, Watcher
from tests.kube.watching import PODS, Seen, watching
from tests.support.fake_api import Fault, until
from tests.support.objects import pod_json


async def test_no_round_of_the_loop_has_two_slices():
    intake, rounds, now = Intake(), [], 0

    async def count() -> None:
        nonlocal now
        while True:
            now += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    watchers = [Watcher(None, one, lambda facts: None, intake=intake) for one in (pods(), nodes())]
    steps = [
        watcher._in_slices(lambda thing: rounds.append(now) or [], list(range(3 * SLICE_ITEMS_MAX)))
        for watcher in watchers
    ]
    await asyncio.gather(*steps)
    counting.cancel()

    assert len(rounds) == 6 * SLICE_ITEMS_MAX
    assert max(rounds.count(one) for one in set(rounds)) <= SLICE_ITEMS_MAX


async def test_everything_is_taken_in_order(api, client, seen):
    for index in range(3 * SLICE_ITEMS_MAX + 1):
        api.put(PODS, pod_json(f"p{index:03}"))

    async with watching(client, seen) as watcher:
        await watcher.synced.wait()

    assert [fact.pod.name for fact in seen.facts] == [f"p{index:03}" for index in range(3 * SLICE_ITEMS_MAX + 1)]


async def test_what_a_list_lacks_goes_in_slices(api, client):
    many = 3 * SLICE_ITEMS_MAX
    for index in range(many + 1):
        api.put(PODS, pod_json(f"p{index:03}"))
    api.fail("WATCH", PODS, Fault(chunks=[], hang=True))
    told = []
    watcher = Watcher(client, pods(), told.append)
    task = asyncio.create_task(watcher.run())
    await watcher.synced.wait()
    told.clear()
    for key in list(api.objects[PODS])[:many]:
        del api.objects[PODS][key]
    await watcher.relist()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert [type(fact).__name__ for facts in told for fact in facts] == ["PodGone"] * many
    assert max(map(len, told)) <= SLICE_ITEMS_MAX
    assert watcher.held == 1


async def test_a_stream_is_ended_in_a_turn(api, client):
    api.put(PODS, pod_json("p0"))
    intake = Intake()
    watcher = Watcher(client, pods(), lambda facts: None, intake=intake)
    task = asyncio.create_task(watcher.run())
    await until(lambda: api.count("WATCH", PODS) == 1)
    async with intake.turns:
        asked = asyncio.create_task(watcher.relist())
        for _ in range(20):
            await asyncio.sleep(0)
        lists = api.count("LIST", PODS)
    async with asyncio.timeout(5):
        await asked
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert (lists, api.count("LIST", PODS)) == (1, 2)


async def test_only_some_lists_are_open_at_the_same_time(api, client):
    intake = Intake()
    api.fail("LIST", PODS, Fault(hang=True), times=OPENED_AT_ONCE_MAX)
    watchers = [Watcher(client, pods(), Seen().sink, intake=intake) for _ in range(OPENED_AT_ONCE_MAX + 1)]
    tasks = [asyncio.create_task(watcher.run()) for watcher in watchers]
    await until(lambda: api.count("LIST", PODS) == OPENED_AT_ONCE_MAX)
    for _ in range(20):
        await asyncio.sleep(0)
    at_once = api.count("LIST", PODS)
    tasks[0].cancel()
    await until(lambda: watchers[-1].synced.is_set())
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    assert at_once == OPENED_AT_ONCE_MAX
