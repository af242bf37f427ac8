"""A list on demand: everything written before the call is known when it returns."""

import asyncio

import msgspec

from extender.kube.resources import pods
from tests.kube.watching import PODS, watching
from tests.support.fake_api import Fault, until
from tests.support.objects import pod_json


async def test_a_relist_brings_what_the_watch_has_not_shown(api, client, seen):
    api.put(PODS, pod_json("p0"))
    api.fail("WATCH", PODS, Fault(chunks=[], hang=True))

    async with watching(client, seen, silence_s=60) as watcher:
        await watcher.synced.wait()
        await until(lambda: any("watch" in request.query for request in api.requests))
        api.put(PODS, pod_json("p1"))
        assert seen.names == ["p0"]

        async with asyncio.timeout(5):
            await watcher.relist()

        assert seen.names == ["p0", "p1"]


async def test_two_who_ask_for_a_list_at_once_get_one(api, client, seen):
    api.put(PODS, pod_json("p0"))
    api.fail("WATCH", PODS, Fault(chunks=[], hang=True))

    async with watching(client, seen, silence_s=60) as watcher:
        await watcher.synced.wait()
        await until(lambda: any("watch" in request.query for request in api.requests))
        async with asyncio.timeout(5):
            await asyncio.gather(watcher.relist(), watcher.relist())

        assert watcher.counters.lists == 2


async def test_a_relist_survives_a_list_that_fails(api, client, seen):
    api.put(PODS, pod_json("p0"))

    async with watching(client, seen, silence_s=60) as watcher:
        await watcher.synced.wait()
        api.fail("LIST", PODS, Fault(status=500))
        api.put(PODS, pod_json("p1"))

        async with asyncio.timeout(5):
            await watcher.relist()

        assert seen.names == ["p0", "p1"]


async def test_a_relist_does_not_wait_for_the_back_off(api, client, seen):
    api.put(PODS, pod_json("p0"))
    rests = []
    never = asyncio.Event()

    async def rest(seconds):
        rests.append(seconds)
        await never.wait()

    api.fail("LIST", PODS, Fault(status=500))
    async with watching(client, seen, sleep=rest) as watcher:
        await until(lambda: rests)

        async with asyncio.timeout(5):
            await watcher.relist()

    assert seen.names == ["p0"]


async def test_a_relist_that_fails_backs_off_all_the_same(api, client, seen):
    rests = []
    never = asyncio.Event()

    async def rest(seconds):
        rests.append(seconds)
        await never.wait()

    api.fail("LIST", PODS, Fault(status=500), times=1000)
    async with watching(client, seen, sleep=rest) as watcher:
        await until(lambda: rests)
        asked = asyncio.create_task(watcher.relist())
        await until(lambda: len(rests) == 2)
        lists = api.count("LIST", PODS) or api.count("GET", PODS)
        asked.cancel()

    assert lists == 2


async def test_to_hear_that_an_optional_resource_is_not_served_is_a_sign_of_life(api, client, seen):
    resource = msgspec.structs.replace(pods(), optional=True)
    api.fail("LIST", PODS, Fault(status=404), times=1000)

    async with watching(client, seen, resource) as watcher:
        await watcher.synced.wait()
        await until(lambda: watcher.counters.errors > 20)  # each after a back-off of up to 30 s

        assert watcher.age_s() < 60


async def test_a_relist_of_an_optional_resource_that_is_not_served_ends(api, client, seen):
    resource = msgspec.structs.replace(pods(), optional=True)
    api.fail("LIST", PODS, Fault(status=404), times=1000)

    async with watching(client, seen, resource) as watcher:
        await watcher.synced.wait()
        async with asyncio.timeout(5):
            await watcher.relist()

    assert seen.names == []
