"""Groups of pods: all or nothing, whatever makes them and whatever breaks on the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest
import pytest_asyncio

from tests.e2e.installation import Installation
from tests.e2e.story import ADMISSION, is_running, is_waiting
from tests.e2e.ward import GROUP, LEAST, QUEUE, TOTAL, Ward, opened
from tests.rig import KubectlError, NodePool

pytestmark = [pytest.mark.rig, pytest.mark.timeout(300)]

POOLS = (NodePool("plain", 3),)
SETTINGS = {"podGroupTimeout": "2s"}
RIG = {
    "feature_gates": {"GenericWorkload": True, "GangScheduling": True},
    "apis": ["scheduling.k8s.io/v1alpha2"],
}
POLICIES = "/apis/admissionregistration.k8s.io/v1"


@pytest_asyncio.fixture(loop_scope="session")
async def ward(hospital: Installation) -> AsyncIterator[Ward]:
    async with opened(hospital) as ward:
        yield ward


async def usage(ward: Ward, want: str) -> None:
    """Wait until the ward's queue says that it uses *want* CPUs."""
    await ward.status(
        "clusterqueues",
        f"{ward.name}-main",
        lambda status: status.get("flavorsUsage", [{}])[0].get("resources", [{}])[0].get("total") == want,
    )


async def test_a_group_of_different_roles_starts_whole_or_not_at_all(ward: Ward):
    await ward.queue(cpu="4")
    await ward.pod("before", cpu="2")
    await ward.runs("before")
    await ward.member("driver", 3, cpu="500m")
    for name in ("worker-1", "worker-2"):
        await ward.member(name, 3, cpu="1")
    assert "500m more needed" in await ward.says("worker-2", "QuotaUsed")
    assert await ward.running() == ["before"]

    await ward.annotate("before", finish="true")
    await ward.runs("driver", "worker-1", "worker-2")
    await usage(ward, "2500m")


async def test_an_incomplete_group_holds_nothing_and_its_owner_is_told(ward: Ward):
    await ward.queue(cpu="4")
    for name in ("a", "b"):
        await ward.member(name, 3)
    await ward.says("a", "GangIncomplete", "2 of 3 pods of group team exist")
    await ward.says("b", "GangIncomplete", "2 of 3 pods of group team exist")
    await ward.pod("other", cpu="4")
    await ward.runs("other")

    (event,) = await ward.events("a", "PodGroupTimeout")
    assert event["type"] == "Warning"
    assert "2 of 3 pods of group team exist" in event["message"]

    await ward.annotate("other", finish="true")
    await ward.member("c", 3)
    await ward.runs("a", "b", "c")


async def test_a_failed_member_is_replaced_at_once_in_a_full_queue(ward: Ward):
    await ward.queue(cpu="2")
    for name in ("a", "b"):
        await ward.member(name, 2)
    await ward.runs("a", "b")
    await ward.pod("next", cpu="1")
    await ward.says("next", "QuotaUsed")

    await ward.annotate("a", fail="true")
    await ward.until(lambda pods: pods["a"]["status"]["phase"] == "Failed", "a failed")
    await ward.member("a-again", 2)

    await ward.runs("a-again", "b")
    assert is_waiting(await ward.get("next"))


async def test_a_pod_too_many_is_told_so_and_waits(ward: Ward):
    await ward.queue(cpu="4")
    for name in ("a", "b", "z"):
        await ward.member(name, 2)
    await ward.runs("a", "b")

    said = await ward.says("z", "ExcessPod")
    assert said == "group team has its 2 pods already; delete this one or raise the total count"
    assert is_waiting(await ward.get("z"))


async def test_a_group_that_is_finished_gives_its_quota_back(ward: Ward):
    await ward.queue(cpu="2")
    for name in ("a", "b"):
        await ward.member(name, 2)
    await ward.runs("a", "b")
    await ward.pod("next", cpu="2")
    await ward.says("next", "QuotaUsed")

    await ward.annotate("a", finish="true")
    await usage(ward, "1")
    assert is_waiting(await ward.get("next"))
    await ward.annotate("b", finish="true")
    await ward.runs("next")


async def test_as_few_may_start_as_the_group_allows(ward: Ward):
    await ward.queue(cpu="3")
    for name in ("a", "b", "c", "d"):
        await ward.member(name, 4, annotations={LEAST: "2"})

    await ward.until(lambda pods: sum(map(is_running, pods.values())) == 3, "three of four run")
    (left,) = {"a", "b", "c", "d"} - set(await ward.running())
    said = await ward.says(left, "AdmittedInPart")
    assert said == "group team was admitted with 3 of its 4 pods, as its minimum allows"


async def test_a_crash_between_two_writes_is_finished_by_the_next_leader(ward: Ward):
    await ward.queue(cpu="4")
    await _refuse(ward, "b")
    for name in ("a", "b", "c"):
        await ward.member(name, 3)
    await ward.runs("a", "c")
    before = orjson.loads((await ward.get("a"))["metadata"]["annotations"][ADMISSION])
    assert is_waiting(await ward.get("b"))
    await ward.hospital.service.kill()
    for kind in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
        await ward.api.delete(f"{POLICIES}/{kind}/broken")
    await ward.hospital.service.start()

    await ward.runs("a", "b", "c")
    after = orjson.loads((await ward.get("b"))["metadata"]["annotations"][ADMISSION])
    assert (after["atMs"], after["podSets"]) == (before["atMs"], before["podSets"])


async def _refuse(ward: Ward, name: str) -> None:
    """Let the API server refuse our write to one pod, as a bug in somebody's policy would."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods"]}
    ours = "request.userInfo.username == 'system:serviceaccount:cohort-system:cohort-extender'"
    here = f"request.namespace == '{ward.name}' && object.metadata.name == '{name}'"
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": f"!({ours} && {here})", "message": "not this one"}],
    }
    await _apply_policy(ward, "ValidatingAdmissionPolicy", "validatingadmissionpolicies", spec)
    binding = {"policyName": "broken", "validationActions": ["Deny"]}
    await _apply_policy(ward, "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", binding)
    config = await ward.rig.service_account_kubeconfig("cohort-system", "cohort-extender")
    await ward.pod(name, queue=None)  # a pod of that name shows when the policy is in force
    for _ in range(100):
        if not await _accepted(ward, "annotate", "--overwrite", "pod", name, "-n", ward.name, "x=y", config=config):
            break
        await asyncio.sleep(0.1)
    await ward.delete(name, grace_s=0)
    await ward.gone(name)


async def _accepted(ward: Ward, *arguments: str, config: Path) -> bool:
    try:
        await ward.rig.kubectl(*arguments, config=config)
    except KubectlError as error:
        if "not this one" not in str(error):
            raise
        return False
    return True


async def _apply_policy(ward: Ward, kind: str, plural: str, spec: dict) -> None:
    body = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "broken"}, "spec": spec}
    await ward.api.patch(f"{POLICIES}/{plural}/broken", body, "apply")


def template(*, total: int, name: str = "team") -> dict:
    """A pod template whose pods belong to a group."""
    container = {"name": "main", "image": "busybox:1.37", "resources": {"requests": {"cpu": "500m"}}}
    return {
        "metadata": {"labels": {"app": name}, "annotations": {QUEUE: "main", GROUP: name, TOTAL: str(total)}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    }


def job(name: str, *, total: int, pods: int) -> dict:
    """An indexed Job."""
    made = template(total=total)
    made["spec"]["restartPolicy"] = "Never"
    spec = {"parallelism": pods, "completions": pods, "completionMode": "Indexed", "template": made}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def apps(kind: str, **spec: object) -> dict:
    """A Deployment or StatefulSet of three pods that are one group."""
    made = {"replicas": 3, "selector": {"matchLabels": {"app": "team"}}, "template": template(total=3), **spec}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "team"}, "spec": made}


def ray(name: str, role: str) -> dict:
    """A pod as an operator makes it, with a role label."""
    made = template(total=3)
    made["metadata"]["labels"]["ray.io/node-type"] = role
    return {"apiVersion": "v1", "kind": "Pod", **made, "metadata": {"name": name, **made["metadata"]}}


@pytest.mark.parametrize(
    "objects",
    [
        pytest.param([job("train", total=3, pods=3)], id="an indexed Job"),
        pytest.param([job("launcher", total=3, pods=1), job("worker", total=3, pods=2)], id="Jobs of a JobSet"),
        pytest.param([apps("Deployment")], id="a Deployment"),
        pytest.param([apps("StatefulSet", serviceName="team", podManagementPolicy="Parallel")], id="a StatefulSet"),
        pytest.param(
            [ray("head", "head"), ray("worker-a", "worker"), ray("worker-b", "worker")], id="pods of a RayCluster"
        ),
    ],
)
async def test_whatever_makes_the_pods(ward: Ward, objects: list[dict]):
    await ward.queue(cpu="1")
    await ward.rig.kubectl("apply", "-n", ward.name, "-f", "-", input=b"\n---\n".join(map(orjson.dumps, objects)))
    await ward.until(lambda pods: len(pods) == 3 and all(map(is_waiting, pods.values())), "three pods wait")
    await ward.edit_queue(
        f"{ward.name}-main",
        resourceGroups=[
            {
                "coveredResources": ["cpu"],
                "flavors": [{"name": "any-node", "resources": [{"name": "cpu", "nominalQuota": "2"}]}],
            }
        ],
    )

    await ward.until(lambda pods: sum(map(is_running, pods.values())) == 3, "all three run")
    await usage(ward, "1500m")


async def test_a_stateful_set_that_makes_one_pod_at_a_time_is_refused(ward: Ward):
    await ward.queue(cpu="4")
    made = apps("StatefulSet", serviceName="team")
    await ward.rig.kubectl("apply", "-n", ward.name, "-f", "-", input=orjson.dumps(made))

    said = await ward.says("team-0", "RequestInvalid")
    assert said == (
        "StatefulSet team makes one pod at a time, so group team can never be complete; "
        "create it with podManagementPolicy: Parallel"
    )


async def pod_group(ward: Ward, count: int) -> None:
    """A PodGroup of Kubernetes' own."""
    body = {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "native"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": count}}},
    }
    await ward.api.create(f"/apis/scheduling.k8s.io/v1alpha2/namespaces/{ward.name}/podgroups", body)


async def test_a_native_pod_group_is_a_group(ward: Ward):
    await ward.queue(cpu="4")
    native = {"schedulingGroup": {"podGroupName": "native"}}
    await ward.pod("a", cpu="2", **native)
    assert "PodGroup native does not exist" in await ward.says("a", "RequestInvalid")

    await pod_group(ward, 2)
    assert "1 of 2 pods of group podgroup/native exist" in await ward.says("a", "GangIncomplete")
    await ward.pod("other", cpu="1")
    await ward.runs("other")
    await ward.pod("b", cpu="2", **native)
    await ward.says("b", "QuotaUsed")
    assert await ward.running() == ["other"]

    await ward.annotate("other", finish="true")
    await ward.runs("a", "b")
    await ward.pod("c", **native)
    await ward.says("c", "ExcessPod")
