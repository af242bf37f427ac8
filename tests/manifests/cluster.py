"""The manifests on a rig: applied as a user would, without running the service itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import yaml

from tests.rig import Api, ApiError, Rig

MANIFESTS = Path(__file__).parents[2] / "manifests"
NAMESPACE = "cohort-system"
SERVICE_ACCOUNT = f"system:serviceaccount:{NAMESPACE}:cohort-extender"
ACCOUNT = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/cohort-extender"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
LEASE = f"{LEASES}/cohort-extender"
KUEUE = "/apis/kueue.x-k8s.io"
SCENES = (("", "pods"), ("batch", "jobs"))
POLICY_S_MAX = 30.0
"""The API server compiles a new policy in the background, usually within a second."""


async def install(
    rig: Rig, overlay: str, *, drop: tuple[str, ...] = (), manifests: Path = MANIFESTS
) -> list[dict[str, Any]]:
    """Apply an overlay but for the kinds in *drop*; what was applied."""
    built = await rig.kubectl("kustomize", manifests / overlay)
    objects = [found for found in yaml.safe_load_all(built) if found["kind"] not in drop]
    await rig.kubectl("apply", "--server-side", "-f", "-", input=yaml.safe_dump_all(objects))
    await rig.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
    await hold_the_lease(rig)
    return objects


async def hold_the_lease(rig: Rig) -> None:
    """There is a leader, as wherever our service account writes."""
    lease = {"metadata": {"name": "cohort-extender"}, "spec": {"holderIdentity": "somebody"}}
    await rig.api.create(LEASES, lease)


async def add_namespace(rig: Rig, name: str, **labels: str) -> str:
    """A namespace in which pods can be created; the path of its pods."""
    await rig.api.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    await rig.wait_for(
        f"/api/v1/namespaces/{name}/serviceaccounts",
        lambda found: any(each["metadata"]["name"] == "default" for each in found),
    )
    return f"/api/v1/namespaces/{name}/pods"


async def eventually(attempt: Callable[[], Awaitable[bool]], *, what: str) -> None:
    """Wait until *attempt* is true. For the few things of an API server that no watch tells."""
    deadline_s = time.monotonic() + POLICY_S_MAX
    while not await attempt():
        assert time.monotonic() < deadline_s, f"not in {POLICY_S_MAX} s: {what}"
        await asyncio.sleep(0.1)


async def refusal(awaitable: Awaitable[Any]) -> str:
    """What the API server says against it, nothing if it does as asked."""
    try:
        await awaitable
    except ApiError as error:
        return str(error)
    return ""


async def policies_work(rig: Rig, pods: str) -> None:
    """Wait until the policies are in force."""

    async def gated_and_guarded() -> bool:
        made = await rig.api.request("POST", pods, body=probe("kueue.x-k8s.io/queue-name"), params={"dryRun": "All"})
        forged = probe("cohort-extender.io/admission")
        forgery = await refusal(rig.api.request("POST", pods, body=forged, params={"dryRun": "All"}))
        return bool(made["spec"].get("schedulingGates")) and bool(forgery)

    await eventually(gated_and_guarded, what="the policies")


def probe(annotation: str) -> dict[str, Any]:
    """A pod with one annotation."""
    return {
        "metadata": {"name": "probe", "annotations": {annotation: "x"}},
        "spec": {"containers": [{"name": "c", "image": "busybox:1.37"}]},
    }


def jobs_beside(pods: str) -> str:
    """The path of the Jobs in the namespace of *pods*."""
    return pods.replace("/api/v1/", "/apis/batch/v1/").replace("/pods", "/jobs")


def shaped_job(stored: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """The stored Job with the words of *wanted*, whatever its controller writes meanwhile."""
    metadata = stored["metadata"] | {key: wanted["metadata"][key] for key in ("labels", "annotations")}
    metadata.pop("resourceVersion")
    inner = stored["spec"]["template"]
    marks = inner["metadata"] | {"annotations": wanted["spec"]["template"]["metadata"]["annotations"]}
    spec = stored["spec"] | {key: wanted["spec"][key] for key in ("suspend", "parallelism")}
    return stored | {"metadata": metadata, "spec": spec | {"template": inner | {"metadata": marks}}}


async def writer(rig: Rig) -> Api:
    """The API as our service account, with the right to create and put pods and Jobs too: to set scenes."""
    verbs = ["create", "update", "get"]
    rules = [{"apiGroups": [group], "resources": [plural], "verbs": verbs} for group, plural in SCENES]
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    await rig.api.patch(f"{rbac}/clusterroles/scene", {**_typed("ClusterRole"), "rules": rules}, kind="apply")
    binding = {
        **_typed("ClusterRoleBinding"),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "scene"},
        "subjects": [{"kind": "ServiceAccount", "namespace": NAMESPACE, "name": "cohort-extender"}],
    }
    await rig.api.patch(f"{rbac}/clusterrolebindings/scene", binding, kind="apply")
    token = (await rig.api.create(f"{ACCOUNT}/token", {"spec": {"expirationSeconds": 3600}}))["status"]["token"]
    return rig.api_as(token)


async def replica_token(rig: Rig) -> str:
    """The token of the replica that holds the lease, bound to its pod as in a cluster."""
    lease = await rig.api.get(LEASE)
    rights = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    spec = {
        "serviceAccountName": "cohort-extender",
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "main", "image": "cohort-extender:0.1.0", "securityContext": rights}],
    }
    body = {"metadata": {"name": lease["spec"]["holderIdentity"]}, "spec": spec}
    pod = (await rig.api.create(f"/api/v1/namespaces/{NAMESPACE}/pods", body))["metadata"]
    bound = {"apiVersion": "v1", "kind": "Pod", "name": pod["name"], "uid": pod["uid"]}
    request = {"spec": {"expirationSeconds": 3600, "boundObjectRef": bound}}
    return str((await rig.api.create(f"{ACCOUNT}/token", request))["status"]["token"])


def _typed(kind: str) -> dict[str, Any]:
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": "scene"}}
