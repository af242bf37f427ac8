"""The fence inside the API server: whoever does not hold the lease is refused, however late its request comes."""

from __future__ import annotations

from collections.abc import Awaitable

import orjson
import pytest

from tests.faults.auditor import ADMISSION, Auditor, admission_of
from tests.faults.lab import LEFT, RIGHT, Lab, pod, pods_path
from tests.faults.proxy import Point, until
from tests.faults.scenes import Eviction, is_admission, running
from tests.rig import ApiError
from tests.rig.api import Api

pytestmark = [pytest.mark.rig, pytest.mark.timeout(420)]


@pytest.mark.slow
async def test_an_admission_that_arrives_when_another_leads_is_refused(faulty: Lab, auditor: Auditor):
    leader = await faulty.leader()
    hook = faulty.proxy(leader).catch(is_admission, Point.BEFORE, late=True)
    await faulty.submit(LEFT, pod("p"))
    await hook.first()
    await faulty.set_stop_policy(LEFT, "Hold")  # so that the next leader leaves the pod as it is
    await faulty.process(leader).kill()
    await faulty.leader(among=[faulty.other(leader)])

    hook.pass_on()
    (late,) = hook.caught

    async def arrived() -> bool:
        return late.status != 0

    await until(arrived, "the late request arrives")
    (untouched,) = await faulty.pods(LEFT)
    await faulty.set_stop_policy(LEFT, "None")
    await faulty.pods_are(LEFT, lambda pods: running(pods) == ["p"], "the pod runs")
    assert late.status in (403, 409)
    assert admission_of(untouched) is None
    assert auditor.violations == []


async def test_only_the_holder_may_admit_and_evict(faulty: Lab, auditor: Auditor):
    leader = await faulty.leader()
    await faulty.set_stop_policy(LEFT, "Hold")
    await faulty.submit(LEFT, pod("p"))
    answers: dict[str, list[int]] = {}
    for replica in (faulty.other(leader), leader):
        async with faulty.rig.api_as(faulty.tokens[replica.name]) as api:
            answers[replica.name] = [await _admit(api), await _evict(api)]

    assert answers[faulty.other(leader).name] == [403, 403]
    assert answers[leader.name] == [200, 200]


@pytest.mark.slow
async def test_with_the_fence_everything_goes_on_as_ever(faulty: Lab, auditor: Auditor):
    before = {name: len(proxy.calls) for name, proxy in faulty.proxies.items()}
    scene = Eviction(faulty, auditor)
    await scene.prepare()
    await scene.begin()
    await scene.ends()

    calls = [call for name, proxy in faulty.proxies.items() for call in proxy.calls[before[name] :]]
    refused = [call for call in calls if call.status == 403]
    assert [call.path for call in refused if f"/{LEFT}/" in call.path or f"/{RIGHT}/" in call.path] == []


async def _admit(api: Api) -> int:
    patch = {"metadata": {"annotations": {ADMISSION: orjson.dumps({"pod": "x"}).decode()}}}
    return await _status(api.patch(f"{pods_path(LEFT)}/p", patch))


async def _evict(api: Api) -> int:
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": LEFT}}
    return await _status(api.create(f"{pods_path(LEFT)}/p/eviction", eviction))


async def _status(request: Awaitable[object]) -> int:
    try:
        await request
    except ApiError as error:
        return error.status
    return 200
