"""Quota objects on a real API server: what it accepts, refuses, keeps and shows; and what our account may do."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from tests.manifests.cluster import KUEUE, MANIFESTS, NAMESPACE, SERVICE_ACCOUNT, eventually, install, refusal
from tests.rig import Rig

pytestmark = [pytest.mark.rig]

RIG = {"scheduler": False}
OBJECTS = yaml.safe_load(Path(__file__).with_name("objects.yaml").read_text())
HOSPITAL = MANIFESTS / "examples" / "hospital"
WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
VERSIONS = ("v1beta1", "v1beta2")
GPU = "nvidia.com/gpu"


@pytest_asyncio.fixture(loop_scope="session", scope="module", autouse=True)
async def installed(rig: Rig) -> None:
    """The CRDs, rights and policies."""
    await install(rig, "default", drop=WEBHOOKS)
    twice = cq(groups=[group({"a": {GPU: {"nominalQuota": 1}}}), group({"a": {"cpu": {"nominalQuota": 1}}})])

    async def guarded() -> bool:
        return bool(await refusal(dry_run(rig, "ClusterQueue", twice)))

    await eventually(guarded, what="the policy of quota objects")


async def dry_run(rig: Rig, kind: str, spec: dict[str, Any], *, version: str = "v1beta2", top: bool = False) -> Any:
    """Create an object, but do not keep it."""
    plural = {"Topology": "topologies", "WorkloadPriorityClass": "workloadpriorityclasses"}.get(
        kind, f"{kind.lower()}s"
    )
    scope = "/namespaces/default" if kind == "LocalQueue" else ""
    body = {"apiVersion": f"kueue.x-k8s.io/{version}", "kind": kind, "metadata": {"name": "x"}}
    body |= spec if top else {"spec": spec}
    params = {"dryRun": "All", "fieldValidation": "Strict"}
    return await rig.api.request("POST", f"{KUEUE}/{version}{scope}/{plural}", body=body, params=params)


def group(flavors: dict[str, dict[str, dict[str, Any]]], covered: list[str] | None = None) -> dict[str, Any]:
    """A resource group; *covered* None: left out."""
    made = [
        {"name": flavor, "resources": [{"name": name, **quota} for name, quota in resources.items()]}
        for flavor, resources in flavors.items()
    ]
    return {"flavors": made} | ({"coveredResources": covered} if covered is not None else {})


def cq(groups: list[dict[str, Any]] | None = None, **spec: Any) -> dict[str, Any]:
    """The spec of a ClusterQueue."""
    return {"namespaceSelector": {}, **({"resourceGroups": groups} if groups is not None else {}), **spec}


def one(**quota: Any) -> list[dict[str, Any]]:
    """One group with one quota."""
    return [group({"a": {GPU: {"nominalQuota": 4, **quota}}}, [GPU])]


WIDE = {f"f{index}": {"r": {"nominalQuota": 1}} for index in range(65)}
MANY = [
    group({f"f{number}-{index}": {f"r{number}": {"nominalQuota": 1}} for index in range(16)}) for number in range(16)
]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        pytest.param("ClusterQueue", cq(MANY), id="256 flavors in 16 groups"),
        *(pytest.param(each["kind"], each["spec"], id=each["says"]) for each in OBJECTS["good"]),
    ],
)
async def test_good_objects_are_accepted_in_both_versions(
    rig: Rig, version: str, kind: str, spec: dict[str, Any]
) -> None:
    assert await refusal(dry_run(rig, kind, spec, version=version)) == ""


@pytest.mark.parametrize(
    ("kind", "spec", "want"),
    [
        pytest.param("ClusterQueue", cq([*MANY, *one()]), "at most 16 items", id="17 groups"),
        pytest.param("ClusterQueue", cq([group(WIDE)]), "at most 64 items", id="65 flavors in a group"),
        *(pytest.param(each["kind"], each["spec"], each["refusal"], id=each["says"]) for each in OBJECTS["bad"]),
    ],
)
async def test_bad_objects_are_refused_with_the_reason(rig: Rig, kind: str, spec: dict[str, Any], want: str) -> None:
    assert want in await refusal(dry_run(rig, kind, spec))


async def test_a_priority_class_has_a_value(rig: Rig) -> None:
    assert await refusal(dry_run(rig, "WorkloadPriorityClass", {"value": -7}, top=True)) == ""
    assert "value: Required" in await refusal(dry_run(rig, "WorkloadPriorityClass", {}, top=True))


@pytest.mark.parametrize(
    ("path", "made", "change", "want"),
    [
        pytest.param(
            "namespaces/default/localqueues",
            {"clusterQueue": "a"},
            {"clusterQueue": "b"},
            "clusterQueue cannot change",
            id="a local queue stays with its cluster queue",
        ),
        pytest.param(
            "namespaces/default/localqueues", {}, {"clusterQueue": "b"}, "", id="one without may get a cluster queue"
        ),
        pytest.param(
            "resourceflavors",
            {"nodeLabels": {"a": "b"}, "topologyName": "t"},
            {"topologyName": "u"},
            "topologyName cannot change",
            id="a flavor keeps its topology",
        ),
        pytest.param(
            "topologies",
            {"levels": [{"nodeLabel": "a"}]},
            {"levels": [{"nodeLabel": "b"}]},
            "levels may change only",
            id="a topology without hosts is fixed",
        ),
        pytest.param(
            "clusterqueues",
            cq(one(borrowingLimit=1), cohort="c"),
            {"cohort": None},
            "need a cohort",
            id="a queue with limits cannot leave its cohort",
        ),
    ],
)
async def test_what_may_change(rig: Rig, path: str, made: dict[str, Any], change: dict[str, Any], want: str) -> None:
    kind = {"localqueues": "LocalQueue", "resourceflavors": "ResourceFlavor", "topologies": "Topology"}
    body = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": kind.get(path.rsplit("/", maxsplit=1)[-1], "ClusterQueue"),
        "metadata": {"name": "changing"},
        "spec": made,
    }
    await rig.api.create(f"{KUEUE}/v1beta2/{path}", body)
    try:
        said = await refusal(rig.api.patch(f"{KUEUE}/v1beta2/{path}/changing", {"spec": change}))
    finally:
        await rig.api.delete(f"{KUEUE}/v1beta2/{path}/changing")

    assert want in said
    assert bool(said) is bool(want)


async def test_the_articles_yaml_applies_as_it_stands_and_twice(rig: Rig) -> None:
    for _ in range(2):
        await rig.kubectl("apply", "-f", HOSPITAL / "article.yaml")

    cohorts = {each["metadata"]["name"]: each["spec"] for each in await rig.api.list(f"{KUEUE}/v1beta2/cohorts")}
    queue = await rig.api.get(f"{KUEUE}/v1beta2/clusterqueues/ai-model-training-cq")
    assert cohorts["clinical-division"] == {"parent": "medical-center-wide-gpus", "fairSharing": {"weight": "0.6"}}
    assert cohorts["research-division"] == {"parent": "medical-center-wide-gpus", "fairSharing": {"weight": "0.4"}}
    assert queue["spec"]["cohort"] == "research-division"


async def test_the_whole_hospital_applies_and_shows_itself(rig: Rig) -> None:
    await rig.kubectl("apply", "-f", HOSPITAL)

    cohorts = (await rig.kubectl("get", "co")).splitlines()
    queues = (await rig.kubectl("get", "cq")).splitlines()
    local = (await rig.kubectl("get", "queues", "-A")).splitlines()

    assert cohorts[0].split() == ["NAME", "PARENT", "WEIGHT", "SHARE/1000", "AGE"]
    assert cohorts[1].split()[:3] == ["clinical-division", "medical-center-wide-gpus", "0.6"]
    assert [line.split()[:3] for line in queues[1:3]] == [
        ["ai-model-training-cq", "research-division", "BestEffortFIFO"],
        ["clinical-api-cq", "clinical-division", "BestEffortFIFO"],
    ]
    assert len(local) == 6
    everything = await rig.kubectl("get", "kueue", "-A", "-o", "name")
    assert "workloadpriorityclass.kueue.x-k8s.io/clinical" in everything


async def test_both_versions_show_the_same_object(rig: Rig) -> None:
    spec = cq(one(lendingLimit="2"), cohort="c", flavorFungibility={"whenCanBorrow": "Borrow"})
    body = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue", "metadata": {"name": "both"}, "spec": spec}
    await rig.api.create(f"{KUEUE}/v1beta1/clusterqueues", body)
    seen = [(await rig.api.get(f"{KUEUE}/{version}/clusterqueues/both"))["spec"] for version in VERSIONS]
    await rig.api.delete(f"{KUEUE}/v1beta1/clusterqueues/both")

    assert seen[0] == seen[1]
    assert seen[0] == spec | {"queueingStrategy": "BestEffortFIFO", "stopPolicy": "None"}


CONDITION = {
    "type": "Active",
    "status": "True",
    "reason": "Ready",
    "message": "can admit",
    "lastTransitionTime": "2026-03-24T12:00:00Z",
}
USAGE = [{"name": "a", "resources": [{"name": GPU, "total": "3", "borrowed": 1}]}]


@pytest.mark.parametrize(
    ("path", "kind", "status"),
    [
        pytest.param(
            "clusterqueues",
            "ClusterQueue",
            {
                "conditions": [CONDITION],
                "flavorsReservation": USAGE,
                "flavorsUsage": USAGE,
                "pendingWorkloads": 3,
                "reservingWorkloads": 2,
                "admittedWorkloads": 1,
                "fairSharing": {"weightedShare": 9223372036854775807},
            },
            id="ClusterQueue",
        ),
        pytest.param(
            "cohorts", "Cohort", {"conditions": [CONDITION], "fairSharing": {"weightedShare": 100}}, id="Cohort"
        ),
        pytest.param(
            "namespaces/default/localqueues",
            "LocalQueue",
            {
                "conditions": [CONDITION],
                "flavorsUsage": [{"name": "a", "resources": [{"name": GPU, "total": 3}]}],
                "pendingWorkloads": 0,
                "reservingWorkloads": 2,
                "admittedWorkloads": 1,
            },
            id="LocalQueue",
        ),
    ],
)
async def test_a_status_is_written_by_server_side_apply_and_only_through_its_subresource(
    rig: Rig, path: str, kind: str, status: dict[str, Any]
) -> None:
    typed = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": "told"}}
    folder = f"{KUEUE}/v1beta2/{path}"
    await rig.api.create(folder, {**typed, "spec": {}, "status": status})
    before = await rig.api.get(f"{folder}/told")
    params = {"fieldManager": "t", "force": "true", "fieldValidation": "Strict"}
    await rig.api.patch(f"{folder}/told/status", {**typed, "status": status}, kind="apply", **params)
    after = await rig.api.get(f"{folder}/told")
    await rig.api.delete(f"{folder}/told")

    assert "status" not in before
    assert after["status"] == status


@pytest.mark.parametrize(
    ("verb", "resource", "namespace", "want"),
    [
        ("watch", "pods", "", True),
        ("patch", "pods", "default", True),
        ("patch", "pods/status", "default", True),
        ("create", "pods/eviction", "default", True),
        ("delete", "pods", "default", False),
        ("create", "pods", "default", False),
        ("create", "pods/binding", "default", False),
        ("list", "nodes", "", True),
        ("patch", "nodes", "", False),
        ("watch", "namespaces", "", True),
        ("patch", "namespaces", "", False),
        ("create", "events", "default", True),
        ("watch", "clusterqueues.kueue.x-k8s.io", "", True),
        ("patch", "clusterqueues.kueue.x-k8s.io/status", "", True),
        ("patch", "clusterqueues.kueue.x-k8s.io", "", False),
        ("patch", "localqueues.kueue.x-k8s.io/status", "default", True),
        ("list", "secrets", "default", False),
        ("list", "secrets", NAMESPACE, False),
        ("create", "secrets", NAMESPACE, True),
        ("get", "secrets/cohort-extender-certs", NAMESPACE, True),
        ("get", "secrets/other", NAMESPACE, False),
        ("create", "leases.coordination.k8s.io", NAMESPACE, True),
        ("patch", "leases.coordination.k8s.io/cohort-extender", NAMESPACE, True),
        ("patch", "leases.coordination.k8s.io/other", NAMESPACE, False),
        ("create", "leases.coordination.k8s.io", "default", False),
        ("patch", "mutatingwebhookconfigurations.admissionregistration.k8s.io/cohort-extender", "", True),
        ("patch", "mutatingwebhookconfigurations.admissionregistration.k8s.io/other", "", False),
        ("create", "tokenreviews.authentication.k8s.io", "", False),
    ],
)
async def test_our_account_may_do_what_it_must_and_no_more(
    rig: Rig, verb: str, resource: str, namespace: str, want: bool
) -> None:
    kind, _, rest = resource.partition("/")
    plural, _, api_group = kind.partition(".")
    subresources = ("status", "eviction", "binding")
    attributes = {
        "verb": verb,
        "group": api_group,
        "resource": plural,
        "subresource": rest if rest in subresources else "",
        "name": "" if rest in subresources else rest,
        "namespace": namespace,
    }
    asked = {"spec": {"user": SERVICE_ACCOUNT, "resourceAttributes": attributes}}
    answer = await rig.api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", asked)

    assert answer["status"]["allowed"] is want


async def test_whoever_may_not_see_quota_is_told_the_role_and_sees_it_with_that_role(rig: Rig) -> None:
    await rig.kubectl("create", "serviceaccount", "ann", "-n", "default")
    kubeconfig = await rig.service_account_kubeconfig("default", "ann")
    command = (sys.executable, "-c", "from extender.cli.plugin import main; main()", "tree")

    async def drawn() -> tuple[int | None, str]:
        process = await asyncio.create_subprocess_exec(
            *command, "--kubeconfig", str(kubeconfig), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        told, _ = await process.communicate()
        return process.returncode, told.decode()

    before = await drawn()
    role, user = "--clusterrole=cohort-extender-viewer", "--user=system:serviceaccount:default:ann"
    await rig.kubectl("create", "clusterrolebinding", "ann", role, user)

    async def may() -> bool:
        return (await drawn())[0] == 0

    await eventually(may, what="the role is in force")
    assert before[0] == 1
    assert 'cannot list resource "cohorts" in API group "kueue.x-k8s.io" at the cluster scope' in before[1]
    assert role in before[1]
    assert (await drawn())[1].startswith("quota\n")
