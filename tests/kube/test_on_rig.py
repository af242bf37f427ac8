"""Client, watch, writer and lease against a real API server, as our own service account with the shipped rights."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from extender.kube.client import ApiClient
from extender.kube.config import from_kubeconfig
from extender.kube.lease import Leader
from extender.kube.resources import everything
from extender.kube.watch import Watcher
from extender.kube.writer import Outcome, OutcomeKind, Writer
from extender.model.effects import (
    AdoptPod,
    EvictionReason,
    EvictPod,
    RecordEvent,
    SetPodCondition,
    SetQueueStatus,
    UngatePod,
)
from extender.model.events import ClusterQueueSeen, CohortSeen, PodGone, PodSeen
from extender.model.quota import Toleration
from tests.rig import NodePool
from tests.support.fake_api import until

pytestmark = pytest.mark.rig

RIG = {"nodes": [NodePool("gpu", 2, capacity={"nvidia.com/gpu": 8})]}
MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
PODS = "/api/v1/namespaces/default/pods"
NAMESPACE = "cohort-system"


def pod_json(name, *, gates=("cohort-extender.io/admission",), selector=None):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"app": name},
            "annotations": {"kueue.x-k8s.io/queue-name": "training"},
        },
        "spec": {
            "containers": [{"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": 1}}}],
            "schedulingGates": [{"name": gate} for gate in gates],
            "nodeSelector": selector or {},
            "terminationGracePeriodSeconds": 0,
        },
    }


@contextlib.asynccontextmanager
async def client_of(rig) -> AsyncIterator[ApiClient]:
    """A client as our service account; the CRDs, the namespace and the rights are there."""
    await rig.kubectl("apply", "-k", MANIFESTS / "crd")
    await rig.kubectl("wait", "--for=condition=Established", "crd", "--all")
    await rig.kubectl("apply", "-f", MANIFESTS / "base" / "namespace.yaml")
    await rig.kubectl("apply", "-n", NAMESPACE, "-f", MANIFESTS / "base" / "rbac.yaml")
    client = ApiClient(from_kubeconfig(await rig.service_account_kubeconfig(NAMESPACE, "cohort-extender")))
    try:
        yield client
    finally:
        await client.close()


class Cluster:
    """What the watchers told."""

    def __init__(self, client):
        self.facts = []
        self.problems = {}
        self.pods = {}
        served = [one for one in everything() if not one.optional]
        self.watchers = [Watcher(client, one, self.sink, report=self.report) for one in served]

    def sink(self, facts):
        self.facts += facts
        for fact in facts:
            match fact:
                case PodSeen(pod):
                    self.pods[pod.uid] = pod
                case PodGone(uid):
                    self.pods.pop(uid)

    def report(self, name, problem):
        self.problems[name] = problem

    def pod(self, name):
        return next((pod for pod in self.pods.values() if pod.name == name), None)

    async def has(self, name, true=lambda pod: True):
        await until(lambda: (pod := self.pod(name)) is not None and true(pod), within_s=20)
        return self.pod(name)


@contextlib.asynccontextmanager
async def running(*works):
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def at_work(rig):
    """A client, all watchers synced, and a writer that answers each effect with its outcome."""
    async with client_of(rig) as client:
        cluster = Cluster(client)
        waiting = {}
        writer = Writer(
            client, lambda effect, outcome: waiting.pop(id(effect)).set_result(outcome), may_write=lambda: True
        )

        def write(effect):
            waiting[id(effect)] = asyncio.get_running_loop().create_future()
            future = waiting[id(effect)]
            writer.submit(effect)
            return asyncio.wait_for(future, 30)

        async with running(writer.run(), *(watcher.run() for watcher in cluster.watchers)):
            async with asyncio.timeout(30):
                for watcher in cluster.watchers:
                    await watcher.synced.wait()
            yield cluster, write


def ungate(pod, **changes):
    fields = {
        "workload": "w",
        "uid": pod.uid,
        "namespace": pod.namespace,
        "name": pod.name,
        "resource_version": pod.resource_version,
        "admission": "{}",
        "node_selector": (),
        "tolerations": None,
    }
    return UngatePod(**{**fields, **changes})


def evict(pod, **changes):
    fields = {"uid": pod.uid, "namespace": pod.namespace, "name": pod.name}
    return EvictPod(**{"workload": "w", "reason": EvictionReason.IN_CLUSTER_QUEUE, "message": "m", **fields, **changes})


async def test_the_hospital_is_read_with_the_rights_we_ship(rig):
    async with at_work(rig) as (cluster, _):
        await rig.kubectl("apply", "-f", MANIFESTS / "examples" / "hospital" / "article.yaml")
        await until(lambda: any(isinstance(fact, ClusterQueueSeen) for fact in cluster.facts), within_s=20)
        await until(lambda: sum(isinstance(fact, CohortSeen) for fact in cluster.facts) >= 3, within_s=20)
        queues = [fact.cluster_queue for fact in cluster.facts if isinstance(fact, ClusterQueueSeen)]
        cohorts = [fact.cohort for fact in cluster.facts if isinstance(fact, CohortSeen)]

    assert {problem for problem in cluster.problems.values() if problem} == set()
    assert [one.misconfigured for one in (*queues, *cohorts) if one.misconfigured] == []
    assert {one.name for one in cohorts} >= {"medical-center-wide-gpus", "clinical-division", "research-division"}


async def test_a_pod_is_admitted_by_one_patch_and_runs(rig):
    async with at_work(rig) as (cluster, write):
        await rig.api.create(PODS, pod_json("admitted"))
        pod = await cluster.has("admitted")
        effect = ungate(
            pod,
            node_selector=(("kubernetes.io/os", "linux"),),
            tolerations=(*pod.tolerations, Toleration("gpu", "Exists")),
        )

        outcome = await write(effect)
        after = await cluster.has("admitted", lambda pod: pod.admission == "{}")
        again = await write(effect)

    assert outcome == Outcome(OutcomeKind.DONE)
    assert (pod.gated, after.gated) == (True, False)
    assert after.tolerations == (*pod.tolerations, Toleration("gpu", "Exists"))
    assert after.node_selector == (("kubernetes.io/os", "linux"),)
    assert after.requests == (("nvidia.com/gpu", 1),)
    assert again.kind is OutcomeKind.CONFLICT


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        pytest.param({"uid": "11111111-1111-1111-1111-111111111111"}, OutcomeKind.GONE, id="another uid"),
        pytest.param({"resource_version": "1"}, OutcomeKind.CONFLICT, id="an old version"),
        pytest.param({"name": "nobody"}, OutcomeKind.GONE, id="no such pod"),
        pytest.param({"node_selector": (("zone", "b"),)}, OutcomeKind.INVALID, id="a key that has another value"),
    ],
)
async def test_an_admission_that_must_not_be(rig, changes, want):
    async with at_work(rig) as (cluster, write):
        name = f"guarded-{want.value}-{len(changes)}-{next(iter(changes)).replace('_', '-')}"
        await rig.api.create(PODS, pod_json(name, selector={"zone": "a"}))
        pod = await cluster.has(name)

        outcome = await write(ungate(pod, **changes))

    assert outcome.kind is want
    assert cluster.pod(name).gated


async def test_a_foreign_gate_stays(rig):
    async with at_work(rig) as (cluster, write):
        gates = ("example.com/first", "cohort-extender.io/admission", "example.com/last")
        await rig.api.create(PODS, pod_json("foreign", gates=gates))
        pod = await cluster.has("foreign")

        await write(ungate(pod))
        after = await cluster.has("foreign", lambda pod: not pod.gated)

    assert after.gates == ("example.com/first", "example.com/last")


async def test_a_running_victim_is_evicted_when_its_budget_allows(rig):
    async with at_work(rig) as (cluster, write):
        await rig.api.create(PODS, pod_json("victim", gates=()))
        pod = await cluster.has("victim", lambda pod: pod.ready)
        other = await write(evict(pod, uid="11111111-1111-1111-1111-111111111111"))
        budget = {
            "metadata": {"name": "victim"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "victim"}}},
        }
        path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
        await rig.api.create(path, budget)
        await rig.wait_for(path, lambda found: found and found[0].get("status", {}).get("expectedPods") == 1)

        pending = asyncio.ensure_future(write(evict(pod)))
        events = "/api/v1/namespaces/default/events"
        await write(RecordEvent(pod.uid, pod.namespace, pod.name, "Waits", "for its budget"))
        still = cluster.pod("victim")
        await rig.api.delete(f"{path}/victim")
        outcome = await pending
        await until(lambda: cluster.pod("victim") is None, within_s=20)
        told = await rig.api.list(events, fieldSelector=f"involvedObject.uid={pod.uid},reason=Waits")

    assert other.kind is OutcomeKind.DONE
    assert still is not None
    assert outcome.kind is OutcomeKind.DONE
    assert [event["message"] for event in told] == ["for its budget"]


async def test_words_are_written_beside_those_of_others(rig):
    async with at_work(rig) as (cluster, write):
        await rig.api.create(PODS, pod_json("told"))
        pod = await cluster.has("told")

        first = await write(SetPodCondition(pod.uid, pod.namespace, pod.name, False, "QuotaUsed", "waits for 2"))
        second = await write(SetPodCondition(pod.uid, pod.namespace, pod.name, False, "QuotaUsed", "waits for 1"))
        await cluster.has("told", lambda pod: pod.admitted_condition == "waits for 1")
        pod = cluster.pod("told")
        adopted = await write(AdoptPod(pod.uid, pod.namespace, pod.name, pod.resource_version))
        await cluster.has("told", lambda pod: pod.adopted and pod.managed)
        stored = await rig.api.get(f"{PODS}/told")

    assert {first.kind, second.kind, adopted.kind} == {OutcomeKind.DONE}
    conditions = {one["type"]: one for one in stored["status"]["conditions"]}
    assert conditions["PodScheduled"]["reason"] == "SchedulingGated"
    assert conditions["cohort-extender.io/Admitted"]["lastTransitionTime"]


async def test_the_status_of_a_queue_is_applied(rig):
    async with at_work(rig) as (_, write):
        path = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues"
        await rig.api.create(
            path,
            {
                "apiVersion": "kueue.x-k8s.io/v1beta2",
                "kind": "ClusterQueue",
                "metadata": {"name": "status-cq"},
                "spec": {},
            },
        )
        outcome = await write(SetQueueStatus("ClusterQueue", "", "status-cq", b'{"pendingWorkloads":3}'))
        missing = await write(SetQueueStatus("ClusterQueue", "", "no-cq", b"{}"))
        stored = await rig.api.get(f"{path}/status-cq")

    assert (outcome.kind, missing.kind) == (OutcomeKind.DONE, OutcomeKind.GONE)
    assert stored["status"] == {"pendingWorkloads": 3}


async def test_two_replicas_and_one_lease(rig):
    async with client_of(rig) as client:
        told = []
        leaders = [
            Leader(
                client,
                identity=name,
                namespace=NAMESPACE,
                name="cohort-extender",
                on_change=lambda leads, name=name: told.append((name, leads)),
            )
            for name in ("one", "two")
        ]
        tasks = [asyncio.create_task(leaders[0].run())]
        await until(leaders[0].is_leader, within_s=10)
        tasks.append(asyncio.create_task(leaders[1].run()))
        await until(lambda: leaders[1].holder == "one", within_s=10)
        tasks[0].cancel()
        await asyncio.gather(tasks[0], return_exceptions=True)
        await leaders[0].release()
        await until(leaders[1].is_leader, within_s=10)
        lease = await rig.api.get(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/cohort-extender")
        tasks[1].cancel()
        await asyncio.gather(tasks[1], return_exceptions=True)
        await leaders[1].release()

    assert told == [("one", True), ("one", False), ("two", True), ("two", False)]
    assert lease["spec"]["holderIdentity"] == "two"
    assert lease["spec"]["leaseTransitions"] == 1


async def test_the_api_server_may_die_and_come_back(rig):
    async with at_work(rig) as (cluster, _):
        server = rig.component("kube-apiserver")
        await rig.api.create(PODS, pod_json("before"))
        await cluster.has("before")
        await server.kill()
        await until(lambda: any(cluster.problems.values()), within_s=20)
        await server.start()
        await rig.api.create(PODS, pod_json("after"))
        await until(lambda: cluster.pod("after") is not None, within_s=60)
        await until(lambda: not any(cluster.problems.values()), within_s=60)

    assert cluster.pod("before") is not None
