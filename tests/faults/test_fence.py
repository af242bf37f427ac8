"""The fence inside the API server: whoever does not hold the lease is refused, however late its request comes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path

import orjson
import pytest

from tests.e2e.installation import MANIFESTS, NAMESPACE, Replica
from tests.faults.auditor import ADMISSION, Auditor, admission_of
from tests.faults.lab import LEFT, RIGHT, Lab, pod, pods_path
from tests.faults.proxy import Point, until
from tests.faults.scenes import Eviction, is_admission, running
from tests.rig import ApiError, Rig
from tests.rig.api import Api

pytestmark = [pytest.mark.rig, pytest.mark.timeout(420)]

FENCE = MANIFESTS / "components" / "policy-fence" / "fence.yaml"
ACCOUNT = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/cohort-extender"


class FencedLab(Lab):
    """A lab whose replicas carry tokens that are bound to pods of their names, as in a cluster."""

    def __init__(self, rig: Rig) -> None:
        super().__init__(rig)
        self.tokens: dict[str, str] = {}

    async def credentials(self, replica: Replica) -> Path:
        """With a token file of its own."""
        file = await super().credentials(replica)
        rights = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        container = {"name": "main", "image": "cohort-extender:0.1.0", "securityContext": rights}
        nobody = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        made = await self.rig.api.create(
            pods_path(NAMESPACE),
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": replica.name},
                "spec": {
                    "serviceAccountName": "cohort-extender",
                    "securityContext": nobody,
                    "containers": [container],
                },
            },
        )
        bound = {"apiVersion": "v1", "kind": "Pod", "name": replica.name, "uid": made["metadata"]["uid"]}
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"boundObjectRef": bound}}
        answer = await self.rig.api.create(f"{ACCOUNT}/token", request)
        token = self.tokens[replica.name] = answer["status"]["token"]
        own = self.rig.directory / f"{replica.name}.token"
        own.write_text(token)
        shared = self.rig.directory / f"{NAMESPACE}-cohort-extender.token"
        file.write_text(file.read_text().replace(str(shared), str(own)))
        return file


@pytest.fixture(scope="module")
def lab_class() -> type[Lab]:
    """What ``installed`` makes."""
    return FencedLab


async def test_an_admission_that_arrives_when_another_leads_is_refused(faulty: FencedLab, auditor: Auditor):
    await fence(faulty)
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


async def test_only_the_holder_may_admit_and_evict(faulty: FencedLab, auditor: Auditor):
    await fence(faulty)
    leader = await faulty.leader()
    await faulty.set_stop_policy(LEFT, "Hold")
    await faulty.submit(LEFT, pod("p"))
    answers: dict[str, list[int]] = {}
    for replica in (faulty.other(leader), leader):
        async with faulty.rig.api_as(faulty.tokens[replica.name]) as api:
            answers[replica.name] = [await _admit(api), await _evict(api)]

    assert answers[faulty.other(leader).name] == [403, 403]
    assert answers[leader.name] == [200, 200]


async def test_with_the_fence_everything_goes_on_as_ever(faulty: FencedLab, auditor: Auditor):
    await fence(faulty)
    before = {name: len(proxy.calls) for name, proxy in faulty.proxies.items()}
    scene = Eviction(faulty, auditor)
    await scene.prepare()
    await scene.begin()
    await scene.ends()

    calls = [call for name, proxy in faulty.proxies.items() for call in proxy.calls[before[name] :]]
    refused = [call for call in calls if call.status == 403]
    assert [call.path for call in refused if f"/{LEFT}/" in call.path or f"/{RIGHT}/" in call.path] == []


async def fence(lab: Lab) -> None:
    """Install it, and wait until it works."""
    await lab.rig.kubectl("apply", "--server-side", "-f", FENCE)
    leader = await lab.leader()
    outsider = lab.other(leader)
    await lab.set_stop_policy(LEFT, "Hold")
    await lab.submit(LEFT, pod("probe"))

    async def works() -> bool:
        assert isinstance(lab, FencedLab)
        async with lab.rig.api_as(lab.tokens[outsider.name]) as api:
            try:
                await api.patch(f"{pods_path(LEFT)}/probe", {"metadata": {"annotations": {"a": "b"}}})
            except ApiError as error:
                return error.status == 403
        await asyncio.sleep(0.2)
        return False

    await until(works, "the fence works")
    await lab.empty()


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
