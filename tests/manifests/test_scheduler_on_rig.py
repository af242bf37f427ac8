"""The shipped scheduler configuration in a real kube-scheduler: who is asked about, and what an outage does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
import pytest_asyncio
import yaml

from extender.certs.authority import issue, make_authority
from extender.certs.keeper import server_context
from extender.model.names import NodeName
from extender.model.pods import MARKER_RESOURCE
from extender.model.verdicts import NodeScore
from extender.serve.extender import Extender
from extender.serve.metrics import Metrics
from extender.serve.server import Server
from tests.manifests.cluster import MANIFESTS, eventually
from tests.rig import NodePool, Rig
from tests.serve.doubles import FakeHealth, FakePlacement

pytestmark = [pytest.mark.rig]

RIG = {"scheduler": False, "nodes": [NodePool("gpu", 3, capacity={"nvidia.com/gpu": 8})]}
PODS = "/api/v1/namespaces/default/pods"


class Recorder:
    """A real server with an extender behind it that says yes, and all bodies that came."""

    def __init__(self) -> None:
        self.bodies: dict[str, list[bytes]] = {"filter": [], "prioritize": [], "preempt": []}
        self.placement = FakePlacement()
        self.port = 0
        self._server: Server | None = None

    async def start(self, rig: Rig) -> None:
        """Listen with a certificate of our own making."""
        now = datetime.now(UTC)
        authority = make_authority(now)
        pair = issue(authority, ["cohort-extender.cohort-system.svc"], now)
        (rig.directory / "extender-ca.crt").write_bytes(authority.certificate)
        (rig.directory / "extender.pem").touch(mode=0o600)
        (rig.directory / "extender.pem").write_bytes(pair.certificate + pair.key)
        await self.resume(rig)

    async def resume(self, rig: Rig) -> None:
        """Listen on the same port as before."""
        context = server_context()
        context.load_cert_chain(rig.directory / "extender.pem")
        answers = Extender(self.placement)
        self._server = Server(
            extender={f"/scheduler/{verb}": self._recorded(verb, getattr(answers, verb)) for verb in self.bodies},
            webhooks={},
            health=FakeHealth(),
            metrics=Metrics(),
            body_max={"extender": 1 << 20, "webhook": 1 << 20},
        )
        ports = {"extender": self.port, "webhook": 0, "http": 0}
        await self._server.start(ports, host="127.0.0.1", tls={"extender": context})
        self.port = self._server.ports["extender"]

    def _recorded(self, verb: str, answer: Any) -> Any:
        def record(body: bytes) -> Any:
            self.bodies[verb].append(body)
            return answer(body)

        return record

    def names(self, verb: str) -> set[str]:
        """The pods that *verb* was asked about."""
        return {orjson.loads(body)["Pod"]["metadata"]["name"] for body in self.bodies[verb]}

    async def stop(self) -> None:
        """Be away."""
        assert self._server is not None
        await self._server.stop()


def configuration(rig: Rig, recorder: Recorder, file: str) -> dict[str, Any]:
    """A shipped configuration that asks *recorder*."""
    config: dict[str, Any] = yaml.safe_load((MANIFESTS / "scheduler" / file).read_text())
    for extender in config["extenders"]:
        extender["urlPrefix"] = f"https://127.0.0.1:{recorder.port}/scheduler"
        extender["tlsConfig"]["caFile"] = str(rig.directory / "extender-ca.crt")
    return config


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def recorder(rig: Rig) -> AsyncIterator[Recorder]:
    """A scheduler with our configuration, asking this process."""
    made = Recorder()
    await made.start(rig)
    await rig.start_scheduler(configuration(rig, made, "scheduler-config.yaml"))
    yield made
    await made.stop()


@pytest_asyncio.fixture(loop_scope="session", autouse=True)
async def fresh(rig: Rig, recorder: Recorder) -> None:
    """No pods, and nothing asked yet."""
    await rig.api.delete(PODS, grace_s=0)
    await rig.wait_for(PODS, lambda pods: not pods, what="an empty namespace")
    recorder.placement.asked.clear()
    recorder.placement.scores = []
    for bodies in recorder.bodies.values():
        bodies.clear()


def pod(name: str, *, marked: bool, gpus: int = 1, **spec: str) -> dict[str, Any]:
    amounts = ({"nvidia.com/gpu": str(gpus)} if gpus else {}) | ({MARKER_RESOURCE: "1"} if marked else {})
    container = {"name": "c", "image": "busybox:1.37", "resources": {"limits": amounts}}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


async def runs(rig: Rig, name: str) -> str:
    """Wait until the pod runs; its node."""

    def node(pods: list[dict[str, Any]]) -> str:
        return next((each["spec"]["nodeName"] for each in pods if each["status"].get("phase") == "Running"), "")

    return await rig.wait_for(PODS, node, what=f"{name} running", fieldSelector=f"metadata.name={name}")


async def refused(rig: Rig, name: str) -> dict[str, Any]:
    """Wait until the scheduler has tried the pod in vain; the condition."""

    def condition(pods: list[dict[str, Any]]) -> dict[str, Any]:
        found = [each for one in pods for each in one["status"].get("conditions", []) if each["type"] == "PodScheduled"]
        return next((each for each in found if each["status"] == "False"), {})

    return await rig.wait_for(PODS, condition, what=f"{name} refused", fieldSelector=f"metadata.name={name}")


async def test_the_scheduler_asks_about_marked_pods_only_and_obeys(rig: Rig, recorder: Recorder) -> None:
    await rig.api.create(PODS, pod("plain", marked=False))
    await runs(rig, "plain")
    await rig.api.create(PODS, pod("marked", marked=True))
    await runs(rig, "marked")

    assert recorder.names("filter") == {"marked"}
    assert sorted(orjson.loads(recorder.bodies["filter"][0])["NodeNames"]) == ["gpu-0", "gpu-1", "gpu-2"]


async def test_how_well_nodes_suit_is_asked_about_pods_with_devices_only(rig: Rig, recorder: Recorder) -> None:
    for name, gpus in (("with-devices", 1), ("without", 0)):
        await rig.api.create(PODS, pod(name, marked=True, gpus=gpus))
        await runs(rig, name)

    assert recorder.names("filter") == {"with-devices", "without"}
    assert recorder.names("prioritize") == {"with-devices"}


async def test_a_pod_with_devices_is_placed_where_it_suits_best(rig: Rig, recorder: Recorder) -> None:
    for best in ("gpu-1", "gpu-2"):
        recorder.placement.scores = [NodeScore(NodeName(best), 10)]
        await rig.api.create(PODS, pod(f"suits-{best}", marked=True))

        assert await runs(rig, f"suits-{best}") == best


async def test_with_us_away_marked_pods_wait_and_others_run_and_then_all_do(rig: Rig, recorder: Recorder) -> None:
    await recorder.stop()
    try:
        await rig.api.create(PODS, pod("waits", marked=True))
        waiting = await refused(rig, "waits")
        await rig.api.create(PODS, pod("goes-on", marked=False))
        await runs(rig, "goes-on")
    finally:
        await recorder.resume(rig)

    assert waiting["reason"] == "SchedulerError"
    assert await runs(rig, "waits")


async def test_preempt_is_asked_with_uids_and_its_answer_is_obeyed(rig: Rig, recorder: Recorder) -> None:
    scheduling = "/apis/scheduling.k8s.io/v1/priorityclasses"
    await rig.api.create(scheduling, {"metadata": {"name": "urgent"}, "value": 1000})
    for index in range(3):
        await rig.api.create(PODS, pod(f"low-{index}", marked=True, gpus=8))
        await runs(rig, f"low-{index}")
    await rig.api.create(PODS, pod("high", marked=True, gpus=8, priorityClassName="urgent"))

    assert await runs(rig, "high")

    args = orjson.loads(recorder.bodies["preempt"][0])
    victims = args["NodeNameToMetaVictims"]
    assert set(victims) == {"gpu-0", "gpu-1", "gpu-2"}
    assert all(len(found["Pods"]) == 1 for found in victims.values())


async def test_a_scheduler_that_does_not_know_us_never_places_a_marked_pod(rig: Rig, recorder: Recorder) -> None:
    profiles = {"profiles": [{"schedulerName": "ignorant"}], "leaderElection": {"leaderElect": False}}
    typed = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    await rig.start_scheduler({**typed, **profiles}, name="ignorant-scheduler")
    await rig.api.create(PODS, pod("stranded", marked=True, schedulerName="ignorant"))

    condition = await refused(rig, "stranded")

    assert f"Insufficient {MARKER_RESOURCE}" in condition["message"]
    assert recorder.placement.asked == []


async def test_a_second_scheduler_serves_queued_pods_with_its_own_account(rig: Rig, recorder: Recorder) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cohort-system"}}
    built = await rig.kubectl("kustomize", MANIFESTS / "scheduler" / "second")
    await rig.kubectl("apply", "-f", "-", input=yaml.safe_dump(namespace))
    objects = [each for each in yaml.safe_load_all(built) if each["kind"] != "Deployment"]
    await rig.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(objects))
    config = configuration(rig, recorder, "second/scheduler-config.yaml")
    account = await rig.service_account_kubeconfig("cohort-system", "cohort-scheduler")
    await rig.start_scheduler(config, name="cohort-scheduler", user_config=account)
    queued = pod("queued", marked=True)
    queued["metadata"]["annotations"] = {"kueue.x-k8s.io/queue-name": "a"}

    async def sent_there() -> bool:
        made = await rig.api.request("POST", PODS, body=queued, params={"dryRun": "All"})
        return bool(made["spec"]["schedulerName"] == "cohort-scheduler")

    await eventually(sent_there, what="the policy of the second scheduler")
    await rig.api.create(PODS, queued)

    assert await runs(rig, "queued")
    assert {question.pod.queue for question in recorder.placement.asked} == {"a"}
    leases = await rig.api.list("/apis/coordination.k8s.io/v1/namespaces/cohort-system/leases")
    assert [lease["metadata"]["name"] for lease in leases] == ["cohort-scheduler"]
