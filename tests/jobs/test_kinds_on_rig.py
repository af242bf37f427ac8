"""Every kind by its row: held, admitted, evicted, without code of its own. Controllers are played by the test."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.jobs.kinds import SHIPPED, KindRow, PodSetRow, kind_of
from extender.model.trees import at
from tests.e2e.installation import MANIFESTS, ROOT
from tests.jobs.lab import ADMISSION, EVICTED, MANAGED, Lab, a_while, annotation, as_json, is_running
from tests.rig import ApiError, NodePool

pytestmark = [pytest.mark.rig, pytest.mark.timeout(240)]

EXAMPLES = MANIFESTS / "examples" / "jobs"
CRDS = Path(__file__).parent / "crds"
NAMESPACE = "jobs"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
ROWS = {row.kind: row for row in SHIPPED.values() if row.kind != "Job"}
WIDGET = KindRow(
    group="example.com",
    version="v1",
    kind="Widget",
    plural="widgets",
    suspend="spec.paused",
    pod_sets=(PodSetRow(template="spec.pod", count=("spec.size",)),),
)
OPENED = {
    "components": [f"kinds/{kind.lower()}" for kind in ROWS],
    "settings": {
        "jobs": {
            "integrations": list(ROWS),
            "kinds": [
                {
                    "group": "example.com",
                    "version": "v1",
                    "kind": "Widget",
                    "plural": "widgets",
                    "suspend": "spec.paused",
                    "podSets": [{"template": "spec.pod", "count": ["spec.size"]}],
                }
            ],
        }
    },
    "pools": (NodePool("plain", 4, {"color": "blue"}, capacity={"cpu": 16, "pods": 100}),),
}
WANT = {"JobSet": 3, "RayCluster": 3, "RayJob": 3, "PyTorchJob": 3, "MPIJob": 3, "TrainJob": 3}


def templates(row: KindRow, found: dict[str, Any]) -> list[tuple[dict[str, Any], int]]:
    """The pod templates of an object, and how many pods of each. Of a patch it is what the runtime makes of it."""
    result = []
    for rule in kind_of(row).pod_sets:
        elements = [found]
        if rule.each:
            inner = at(found, rule.each)
            elements = list(inner.values()) if isinstance(inner, dict) else inner
        for element in elements:
            count = 1
            for paths in rule.count:
                count *= min([value for path in paths if (value := at(element, path)) is not None], default=1)
            template = copy.deepcopy(at(element, rule.template))
            if rule.requests:
                template["spec"]["containers"] = [{"name": "n", "image": "b", "resources": at(found, rule.requests)}]
            result.append((template, count))
    return result


class Controller:
    """Plays the controller of one object: makes the pods of its templates, and takes them away."""

    def __init__(self, lab: Lab, row: KindRow, name: str) -> None:
        self.lab, self.row, self.name = lab, row, name
        self.path = f"/apis/{row.group}/{row.version}/namespaces/{NAMESPACE}/{row.plural}"

    async def get(self) -> dict[str, Any]:
        """The object as it is now."""
        return await self.lab.api.get(f"{self.path}/{self.name}")

    async def until(self, wanted: Any, what: str) -> dict[str, Any]:
        """Wait until the object is as *wanted* says."""

        def found(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return [one for one in objects if one["metadata"]["name"] == self.name and wanted(one)]

        # A kind that was not there is asked for again in half a minute.
        (one,) = await self.lab.api.wait_for(self.path, found, what=f"{self.name}: {what}", timeout_s=60.0)
        return one

    def suspended(self, found: dict[str, Any]) -> bool:
        """Whether the object says that it is suspended."""
        return at(found, kind_of(self.row).suspend) is True

    async def make_pods(self, owner: dict[str, Any] | None = None) -> None:
        """One pod for each place of each template."""
        found = await self.get()
        reference = {"apiVersion": found["apiVersion"], "kind": found["kind"], "name": self.name}
        reference = {**(owner or {**reference, "uid": found["metadata"]["uid"]}), "controller": True}
        for index, (template, count) in enumerate(templates(self.row, found)):
            for place in range(count):
                pod = copy.deepcopy(template)
                pod.setdefault("metadata", {})["name"] = f"{self.name}-{index}-{place}"
                pod["metadata"]["ownerReferences"] = [reference]
                await self.lab.api.create(PODS, {"apiVersion": "v1", "kind": "Pod", **pod})

    async def running(self, count: int) -> list[dict[str, Any]]:
        """Wait until so many pods run."""
        return await self.lab.api.wait_for(
            PODS,
            lambda pods: [pod for pod in pods if is_running(pod)] if sum(map(is_running, pods)) == count else [],
            what=f"{count} pods run",
        )


async def play(lab: Lab, row: KindRow, name: str, want: int) -> None:
    """Held, admitted, run, evicted, drained, admitted again."""
    controller = Controller(lab, row, name)
    await controller.until(lambda one: annotation(one, ADMISSION), "admitted")
    admitted = await controller.until(lambda one: not controller.suspended(one), "started")
    assert admitted["metadata"]["labels"][MANAGED] == "true"
    await controller.make_pods()
    await controller.running(want)
    await lab.api.patch("/apis/kueue.x-k8s.io/v1beta2/clusterqueues/jobs-cq", {"spec": {"stopPolicy": "HoldAndDrain"}})
    evicted = await controller.until(controller.suspended, "suspended")
    assert annotation(evicted, EVICTED)
    await a_while(1.0)
    assert annotation(await controller.get(), ADMISSION) is None
    await lab.api.patch("/apis/kueue.x-k8s.io/v1beta2/clusterqueues/jobs-cq", {"spec": {"stopPolicy": "None"}})
    await a_while(1.0)
    assert annotation(await controller.get(), ADMISSION) is None  # its pods run still
    await lab.api.delete(PODS, grace_s=0)
    again = await controller.until(lambda one: annotation(one, ADMISSION), "admitted again")
    assert as_json(annotation(again, ADMISSION))["id"] != as_json(annotation(admitted, ADMISSION))["id"]
    assert sum(one["count"] for one in as_json(annotation(again, ADMISSION))["podSets"]) == want
    await lab.api.delete(f"{controller.path}/{name}")


@pytest.fixture(scope="module")
def queues_once() -> dict[str, bool]:
    return {}


async def prepare(lab: Lab, done: dict[str, bool]) -> None:
    """The examples' queues, once."""
    if not done:
        await lab.installation.apply(EXAMPLES / "queues.yaml")
        done["queues"] = True


@pytest.mark.parametrize("kind", list(ROWS))
async def test_a_shipped_kind_goes_its_way(lab: Lab, queues_once: dict[str, bool], kind: str):
    await prepare(lab, queues_once)
    row = ROWS[kind]
    # Installed while the service runs: taken up without a restart.
    await lab.installation.apply(CRDS / f"{kind.lower()}.yaml")
    await lab.rig.kubectl("wait", "--for=condition=Established", f"crd/{row.plural}.{row.group}", "--timeout=30s")
    name = yaml.safe_load((EXAMPLES / f"{kind.lower()}.yaml").read_text())["metadata"]["name"]
    await lab.installation.apply(EXAMPLES / f"{kind.lower()}.yaml")

    await play(lab, row, name, WANT[kind])


async def test_a_row_of_ones_own_does_for_ones_own_kind(lab: Lab, queues_once: dict[str, bool]):
    await prepare(lab, queues_once)
    await lab.rig.kubectl("apply", "-f", "-", input=(CRDS / "widget.yaml").read_text())
    await lab.rig.kubectl("wait", "--for=condition=Established", "crd/widgets.example.com", "--timeout=30s")
    widget = {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "own", "namespace": NAMESPACE, "labels": {"kueue.x-k8s.io/queue-name": "jobs"}},
        "spec": {
            "size": 2,
            "pod": {"spec": {"containers": [{"name": "a", "image": "b", "resources": {"requests": {"cpu": "1"}}}]}},
        },
    }
    await lab.api.create(f"/apis/example.com/v1/namespaces/{NAMESPACE}/widgets", widget)

    await play(lab, WIDGET, "own", 2)


async def test_pods_of_a_child_job_run_by_the_admission_of_the_object_above(lab: Lab, queues_once: dict[str, bool]):
    await prepare(lab, queues_once)
    await lab.installation.apply(CRDS / "jobset.yaml")
    await lab.rig.kubectl("wait", "--for=condition=Established", "crd/jobsets.jobset.x-k8s.io", "--timeout=30s")
    await lab.installation.apply(EXAMPLES / "jobset.yaml")
    row = ROWS["JobSet"]
    controller = Controller(lab, row, "set")
    found = await controller.until(lambda one: annotation(one, ADMISSION), "admitted")
    inner = found["spec"]["replicatedJobs"][1]["template"]
    jobs = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
    owner = {"apiVersion": found["apiVersion"], "kind": "JobSet", "name": "set", "uid": found["metadata"]["uid"]}
    child = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "set-workers-0", "ownerReferences": [{**owner, "controller": True}]},
        "spec": inner["spec"],
    }
    made = await lab.api.create(jobs, child)
    pods = await controller.running(2)

    assert made["spec"].get("suspend", False) is False
    assert all(annotation(pod, ADMISSION) is None for pod in pods)
    await lab.api.delete(f"{jobs}/set-workers-0", propagationPolicy="Background")
    await lab.api.delete(f"{controller.path}/set")


async def test_nobody_else_starts_a_queued_object(lab: Lab, queues_once: dict[str, bool]):
    await prepare(lab, queues_once)
    await lab.installation.apply(CRDS / "jobset.yaml")
    await lab.rig.kubectl("wait", "--for=condition=Established", "crd/jobsets.jobset.x-k8s.io", "--timeout=30s")
    await lab.api.patch("/apis/kueue.x-k8s.io/v1beta2/clusterqueues/jobs-cq", {"spec": {"stopPolicy": "Hold"}})
    await a_while(1.0)
    await lab.installation.apply(EXAMPLES / "jobset.yaml")
    controller = Controller(lab, ROWS["JobSet"], "set")
    with pytest.raises(ApiError) as refused:
        await lab.api.patch(f"{controller.path}/set", {"spec": {"suspend": False}})

    assert refused.value.status == 403
    await lab.api.patch("/apis/kueue.x-k8s.io/v1beta2/clusterqueues/jobs-cq", {"spec": {"stopPolicy": "None"}})
    await lab.api.delete(f"{controller.path}/set")


async def test_each_shipped_kind_has_an_example_a_schema_and_a_component():
    for kind in ROWS:
        for path in (EXAMPLES / f"{kind.lower()}.yaml", CRDS / f"{kind.lower()}.yaml"):
            assert path.exists(), path.relative_to(ROOT)
        assert (MANIFESTS / "components" / "kinds" / kind.lower() / "kustomization.yaml").exists()
