"""Starting, stopping, following and being forbidden: what a replica does when it cannot do its work."""

from __future__ import annotations

import asyncio

import pytest
import yaml

from tests.e2e.installation import MANIFESTS, NAMESPACE
from tests.faults.auditor import Auditor, admission_of
from tests.faults.lab import LEFT, TOTAL, Lab, Object, objects, pod, pods_path
from tests.faults.proxy import Call, Point, until
from tests.faults.scenes import is_admission, running

pytestmark = [pytest.mark.rig, pytest.mark.timeout(420)]

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/cohort-extender"
ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/cohort-extender"
GOOD_NODES = ["good-0", "good-1"]
RESTARTS = 10
GROWTH_BYTES_MAX = 24 << 20


def question(asked: Object) -> Object:
    """What the scheduler asks about a pod."""
    return {"Pod": asked, "NodeNames": [*GOOD_NODES, "other-0"]}


def lists_pods(call: Call) -> bool:
    """Whether *call* is a list of pods."""
    return call.method == "GET" and call.path == "/api/v1/pods" and not call.is_watch


async def admitted(lab: Lab, name: str) -> Object:
    """Wait until the pod carries an admission."""
    found: list[Object] = []

    def is_in(pods: list[Object]) -> bool:
        found[:] = [one for one in pods if one["metadata"]["name"] == name and admission_of(one) is not None]
        return bool(found)

    await lab.pods_are(LEFT, is_in, f"{name} is admitted")
    return found[0]


async def test_a_follower_that_lags_behind_the_leader_says_so_and_refuses_nothing(faulty: Lab, auditor: Auditor):
    leader = await faulty.leader()
    follower = faulty.other(leader)
    url = f"https://127.0.0.1:{follower.extender}/scheduler/filter"
    faulty.proxy(follower).hold_watches("/pods$")
    await faulty.submit(LEFT, pod("p"))
    asked = await admitted(faulty, "p")

    _, lagging = await faulty.ask(url, question(asked))
    faulty.proxy(follower).free_watches()

    async def answers() -> bool:
        _, answer = await faulty.ask(url, question(asked))
        return not answer.get("Error")

    await until(answers, "the follower answers")
    _, answer = await faulty.ask(url, question(asked))
    assert "has not reached the extender yet" in lagging["Error"]
    assert not lagging.get("FailedNodes")
    assert not lagging.get("FailedAndUnresolvableNodes")
    assert set(answer["NodeNames"]) <= set(GOOD_NODES)
    assert auditor.violations == []


async def test_before_its_lists_are_in_a_replica_gates_pods_and_answers_nothing_else(faulty: Lab, auditor: Auditor):
    follower = faulty.other(await faulty.leader())
    await faulty.process(follower).kill()
    hook = faulty.proxy(follower).catch(lists_pods, Point.BEFORE)
    await faulty.process(follower).start(wait=False)
    await hook.first()
    review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "operation": "CREATE",
            "namespace": LEFT,
            "object": pod("p"),
        },
    }

    async def serves() -> bool:
        _, text = await faulty.probe(follower, "/readyz")
        return text == "pods: not listed yet" or text.startswith("pods: not listed yet\n")

    await until(serves, "it waits for the list of pods alone")
    status, gated = await faulty.ask(f"https://127.0.0.1:{follower.webhook}/webhooks/mutate-pods", review)
    _, filtered = await faulty.ask(f"https://127.0.0.1:{follower.extender}/scheduler/filter", question(pod("p")))
    hook.pass_on()
    await faulty.process(follower).wait_ready()

    assert (status, gated["response"]["allowed"], bool(gated["response"].get("patch"))) == (200, True, True)
    assert filtered["Error"] == "cohort-extender is starting: pods not listed yet"


@pytest.mark.slow
async def test_started_while_the_api_server_is_down_it_waits_and_says_so(faulty: Lab, auditor: Auditor):
    server = faulty.rig.component("kube-apiserver")
    for replica in faulty.replicas:
        await faulty.process(replica).kill()
    await server.kill()
    for replica in faulty.replicas:
        await faulty.process(replica).start(wait=False)

    async def says_so() -> bool:
        answers = [await faulty.probe(replica, "/readyz") for replica in faulty.replicas]
        return all(status == 503 and "pods: " in text for status, text in answers)

    await until(says_so, "both say what is missing")
    assert [await faulty.probe(replica, "/livez") for replica in faulty.replicas] == [(200, "ok\n")] * 2
    await server.start()
    for replica in faulty.replicas:
        await faulty.process(replica).wait_ready(90)
    await faulty.submit(LEFT, pod("p"))
    await faulty.pods_are(LEFT, lambda pods: running(pods) == ["p"], "the pod runs")

    assert auditor.violations == []


async def test_told_to_stop_twice_it_stops_once_and_gives_the_lease_back(faulty: Lab, auditor: Auditor):
    leader = await faulty.leader()
    ending = asyncio.create_task(faulty.process(leader).terminate(30))
    await asyncio.sleep(0.3)
    await faulty.process(leader).terminate(30)

    assert await ending == 0
    assert "Traceback" not in faulty.process(leader).text()
    await faulty.leader(among=[faulty.other(leader)], timeout_s=10)  # sooner than any lease runs out


async def test_told_to_stop_while_it_starts_it_stops(faulty: Lab, auditor: Auditor):
    follower = faulty.other(await faulty.leader())
    await faulty.process(follower).kill()
    hook = faulty.proxy(follower).catch(lists_pods, Point.BEFORE)
    await faulty.process(follower).start(wait=False)
    await hook.first()

    assert await faulty.process(follower).terminate(20) == 0


@pytest.mark.slow
async def test_stopped_with_a_write_on_its_way_it_keeps_the_lease_until_that_has_ended(faulty: Lab, auditor: Auditor):
    leader = await faulty.leader()
    other = faulty.other(leader)
    hook = faulty.proxy(leader).catch(is_admission, Point.BEFORE)
    await faulty.submit(LEFT, pod("p"))
    await hook.first()

    assert await faulty.process(leader).terminate(30) == 0
    ended_s = asyncio.get_running_loop().time()
    lease = await faulty.rig.api.get(LEASE)
    held_by = lease["spec"]["holderIdentity"]
    await faulty.leader(among=[other])
    waited_s = asyncio.get_running_loop().time() - ended_s
    hook.drop()
    await faulty.pods_are(LEFT, lambda pods: running(pods) == ["p"], "the pod runs")

    assert held_by == leader.name
    assert waited_s > 5
    assert auditor.violations == []


async def test_a_lease_that_is_deleted_never_has_two_holders(faulty: Lab, auditor: Auditor):
    leader = await faulty.leader()
    both: list[str] = []
    await faulty.rig.api.delete(LEASE)
    for _ in range(40):
        leads = [replica.name for replica in faulty.replicas if await faulty.leads(replica)]
        if len(leads) > 1:
            both += leads
        await asyncio.sleep(0.1)

    assert both == []
    assert await faulty.leads(leader)
    assert (await faulty.rig.api.get(LEASE))["spec"]["holderIdentity"] == leader.name


@pytest.mark.slow
async def test_quota_objects_that_come_after_the_service_are_taken_up(faulty: Lab, auditor: Auditor):
    for replica in faulty.replicas:
        await faulty.process(replica).kill()
    await faulty.rig.kubectl("delete", "-k", MANIFESTS / "crd", "--wait=true")
    for replica in faulty.replicas:
        await faulty.process(replica).start(wait=False)

    async def says_so() -> bool:
        answers = [await faulty.probe(replica, "/readyz") for replica in faulty.replicas]
        return all(status == 503 and "does not serve" in text for status, text in answers)

    await until(says_so, "both say what is missing")
    await faulty.rig.kubectl("apply", "--server-side", "-k", MANIFESTS / "crd")
    await faulty.rig.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
    await faulty.rig.kubectl("apply", "--server-side", "-f", "-", input=yaml.safe_dump_all(objects()))
    for replica in faulty.replicas:
        await faulty.process(replica).wait_ready(90)
    await faulty.submit(LEFT, pod("p"))
    await faulty.pods_are(LEFT, lambda pods: running(pods) == ["p"], "the pod runs")


@pytest.mark.slow
async def test_without_the_right_to_write_pods_it_says_why_and_does_not_storm(faulty: Lab, auditor: Auditor):
    role = await faulty.rig.api.get(ROLE)
    less = [rule | {"verbs": [verb for verb in rule["verbs"] if verb != "patch"]} for rule in role["rules"][:1]]
    leader = await faulty.leader()
    await faulty.rig.api.patch(ROLE, {"rules": [*less, *role["rules"][1:]]})
    try:
        hook = faulty.proxy(leader).catch(is_admission, Point.AFTER)
        await faulty.submit(LEFT, pod("p"))
        await hook.first()
        hook.pass_on()
        before = len(faulty.proxy(leader).calls)
        await asyncio.sleep(10)
        tries = [call for call in faulty.proxy(leader).calls[before:] if is_admission(call)]
    finally:
        await faulty.rig.api.patch(ROLE, {"rules": role["rules"]})
    await faulty.pods_are(LEFT, lambda pods: running(pods) == ["p"], "the pod runs")

    assert len(tries) <= 10
    assert {call.status for call in tries} <= {403}


@pytest.mark.slow
async def test_a_resource_that_cannot_be_listed_any_more_stops_no_new_leader(faulty: Lab, auditor: Auditor):
    role = await faulty.rig.api.get(ROLE)
    less = [rule | {"resources": [name for name in rule["resources"] if name != "cohorts"]} for rule in role["rules"]]
    leader = await faulty.leader()
    await faulty.rig.api.patch(ROLE, {"rules": [rule for rule in less if rule["resources"]]})
    try:
        await faulty.process(leader).kill()
        await faulty.submit(LEFT, pod("p"))
        await admitted(faulty, "p")
    finally:
        await faulty.rig.api.patch(ROLE, {"rules": role["rules"]})


@pytest.mark.slow
async def test_restarts_of_the_api_server_cost_no_memory(faulty: Lab, auditor: Auditor):
    server = faulty.rig.component("kube-apiserver")
    await faulty.submit(LEFT, *(pod(f"p{index}") for index in range(TOTAL)))
    sizes = []
    for _ in range(RESTARTS):
        await server.restart()
        for replica in faulty.replicas:
            await faulty.process(replica).wait_ready(90)
        await faulty.leader()
        await faulty.rig.api.delete(f"{pods_path(LEFT)}/p0", grace_s=0)
        await faulty.submit(LEFT, pod("p0"))
        await faulty.pods_are(LEFT, lambda pods: len(running(pods)) == TOTAL, "all run")
        sizes.append(max(faulty.process(replica).memory() for replica in faulty.replicas))

    assert sizes[-1] - sizes[1] < GROWTH_BYTES_MAX
    assert auditor.violations == []
