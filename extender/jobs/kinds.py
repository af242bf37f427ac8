"""The table of kinds: which objects with a suspend field can be queued, as rows of data.

A row says where things are, in paths with dots (``spec.suspend``, in a list ``spec.parts[name=main].count``). The
shipped rows are written in the same words as those that users add under ``jobs.kinds`` of the configuration file.
Kinds that are not named there are not looked at, but for batch/v1 Job.
"""

import re
from typing import Any

import msgspec

from extender.model.errors import UserError
from extender.model.jobs import Addition, Kind, PodSetRule
from extender.model.trees import Path

_STEP = r"[A-Za-z0-9_-]+(?:\[[A-Za-z0-9_-]+=[A-Za-z0-9_./-]+\])?"
_PATH = re.compile(rf"{_STEP}(?:\.{_STEP}){{0,15}}")
_PARTS = re.compile(r"\[[^\]]*\]|[A-Za-z0-9_-]+")
_GROUP = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_WORD = re.compile(r"[A-Za-z0-9]{1,63}")


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A part of the file: camelCase keys, none unknown."""


class PodSetRow(_Row, frozen=True):
    """Where one pod set is, or with ``each`` a list or map of them.

    ``count`` is multiplied: each entry is a path, or several of which the least counts. A path that leads to nothing
    counts 1. ``requests``: where the resources of one pod are, if the object has only a patch of its template;
    ``required``: what must be set then, since the object that has the rest of it is not read.
    """

    template: str
    count: tuple[str | tuple[str, ...], ...] = ()
    each: str = ""
    name: str = ""
    requests: str = ""
    required: tuple[str, ...] = ()


class AdditionRow(_Row, frozen=True):
    """An element of the list at ``path`` that the webhook adds, unless one with the same ``key`` is there."""

    path: str
    key: str
    item: dict[str, Any]


class FinishedRow(_Row, frozen=True):
    """Where it says that it is over: conditions that are then True, or a field with one of these values."""

    conditions: tuple[str, ...] = ()
    path: str = ""
    values: tuple[str, ...] = ()


class KindRow(_Row, frozen=True):
    """One kind, as the configuration file has it.

    ``through`` are shipped kinds that stand between it and its pods: they are watched with it.
    """

    group: str
    version: str
    kind: str
    plural: str
    pod_sets: tuple[PodSetRow, ...]
    suspend: str = "spec.suspend"
    active: tuple[str, ...] = ()
    finished: FinishedRow = FinishedRow()
    priority_class: str = ""
    additions: tuple[AdditionRow, ...] = ()
    through: tuple[str, ...] = ()


JOB = KindRow(
    group="batch",
    version="v1",
    kind="Job",
    plural="jobs",
    pod_sets=(PodSetRow(template="spec.template", count=(("spec.parallelism", "spec.completions"),)),),
    active=("status.active",),
    finished=FinishedRow(conditions=("Complete", "Failed")),
)
JOB_SET = KindRow(
    group="jobset.x-k8s.io",
    version="v1alpha2",
    kind="JobSet",
    plural="jobsets",
    pod_sets=(
        PodSetRow(
            each="spec.replicatedJobs",
            name="name",
            template="template.spec.template",
            count=("replicas", ("template.spec.parallelism", "template.spec.completions")),
        ),
    ),
    finished=FinishedRow(conditions=("Completed", "Failed")),
)
_RAY_SETS = ("headGroupSpec.template", "workerGroupSpecs")


def _ray(prefix: str) -> tuple[PodSetRow, ...]:
    return (
        PodSetRow(template=f"{prefix}.{_RAY_SETS[0]}"),
        PodSetRow(
            each=f"{prefix}.{_RAY_SETS[1]}", name="groupName", template="template", count=("replicas", "numOfHosts")
        ),
    )


RAY_CLUSTER = KindRow(group="ray.io", version="v1", kind="RayCluster", plural="rayclusters", pod_sets=_ray("spec"))
RAY_JOB = KindRow(
    group="ray.io",
    version="v1",
    kind="RayJob",
    plural="rayjobs",
    pod_sets=_ray("spec.rayClusterSpec"),
    finished=FinishedRow(path="status.jobDeploymentStatus", values=("Complete", "Failed")),
    through=("RayCluster",),
)
PYTORCH_JOB = KindRow(
    group="kubeflow.org",
    version="v1",
    kind="PyTorchJob",
    plural="pytorchjobs",
    suspend="spec.runPolicy.suspend",
    pod_sets=(PodSetRow(each="spec.pytorchReplicaSpecs", template="template", count=("replicas",)),),
    finished=FinishedRow(conditions=("Succeeded", "Failed")),
    priority_class="spec.runPolicy.schedulingPolicy.priorityClass",
)
MPI_JOB = KindRow(
    group="kubeflow.org",
    version="v2beta1",
    kind="MPIJob",
    plural="mpijobs",
    suspend="spec.runPolicy.suspend",
    pod_sets=(PodSetRow(each="spec.mpiReplicaSpecs", template="template", count=("replicas",)),),
    finished=FinishedRow(conditions=("Succeeded", "Failed")),
    priority_class="spec.runPolicy.schedulingPolicy.priorityClass",
)
TRAIN_JOB_MANAGER = "cohort-extender.io/manager"
_TRAIN_JOB_PATCH = {
    "manager": TRAIN_JOB_MANAGER,
    "trainingRuntimeSpec": {
        "template": {"spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": {"spec": {}}}}}]}}
    },
}
TRAIN_JOB = KindRow(
    group="trainer.kubeflow.org",
    version="v1alpha1",
    kind="TrainJob",
    plural="trainjobs",
    pod_sets=(
        PodSetRow(
            template=f"spec.runtimePatches[manager={TRAIN_JOB_MANAGER}].trainingRuntimeSpec.template"
            ".spec.replicatedJobs[name=node].template.spec.template",
            count=("spec.trainer.numNodes",),
            requests="spec.trainer.resourcesPerNode",
            required=("spec.trainer.numNodes", "spec.trainer.resourcesPerNode"),
        ),
    ),
    finished=FinishedRow(conditions=("Complete", "Failed")),
    additions=(AdditionRow(path="spec.runtimePatches", key="manager", item=_TRAIN_JOB_PATCH),),
    through=("JobSet",),
)
SHIPPED = {row.kind: row for row in (JOB, JOB_SET, RAY_CLUSTER, RAY_JOB, PYTORCH_JOB, MPI_JOB, TRAIN_JOB)}
"""The rows that need no writing: name the kind in the configuration file."""


def kind_of(row: KindRow) -> Kind:
    """The kind that *row* describes. Raises: UserError, naming the field that is wrong."""
    if not _GROUP.fullmatch(row.group):
        raise UserError(f"group: {row.group[:63]!r} is not an API group")
    for field, text in (("version", row.version), ("kind", row.kind), ("plural", row.plural)):
        if not _WORD.fullmatch(text):
            raise UserError(f"{field}: {text[:63]!r} is not a word of letters and digits")
    if not row.pod_sets:
        raise UserError("podSets: is empty; say where the pod templates are")
    return Kind(
        group=row.group,
        version=row.version,
        kind=row.kind,
        plural=row.plural,
        suspend=_path(row.suspend, "suspend"),
        pod_sets=tuple(_rule(one, f"podSets[{at}]") for at, one in enumerate(row.pod_sets)),
        active=tuple(_path(one, "active") for one in row.active),
        finished_conditions=row.finished.conditions,
        finished_path=_path(row.finished.path, "finished.path") if row.finished.path else (),
        finished_values=row.finished.values,
        priority_class=_path(row.priority_class, "priorityClass") if row.priority_class else (),
        additions=tuple(Addition(_path(one.path, "additions.path"), one.key, one.item) for one in row.additions),
    )


def kinds_of(names: tuple[str, ...], rows: tuple[KindRow, ...]) -> tuple[Kind, ...]:
    """batch/v1 Job, the shipped kinds of these *names*, and those of *rows*. Raises: UserError."""
    between = [name for row in (*map(SHIPPED.get, names), *rows) if row is not None for name in row.through]
    names = (*names, *(name for name in between if name not in names))
    unknown = [name for name in names if name not in SHIPPED]
    if unknown:
        raise UserError(f"integrations: {unknown[0][:63]!r} is unknown; write {', '.join(sorted(SHIPPED))}, or a row")
    chosen = [JOB, *(SHIPPED[name] for name in dict.fromkeys(names) if name != "Job"), *rows]
    kinds = []
    for row in chosen:
        try:
            kinds.append(kind_of(row))
        except UserError as error:
            raise error.inside(f"kinds[{row.kind[:63]}]") from error
    found = [kind.name for kind in kinds]
    twice = [name for name in found if found.count(name) > 1]
    if twice:
        raise UserError(f"kinds: {twice[0]} is there twice")
    return tuple(kinds)


def _rule(row: PodSetRow, where: str) -> PodSetRule:
    return PodSetRule(
        template=_path(row.template, f"{where}.template"),
        count=tuple(
            tuple(_path(one, f"{where}.count") for one in ((factor,) if isinstance(factor, str) else factor))
            for factor in row.count
        ),
        each=_path(row.each, f"{where}.each") if row.each else (),
        name=_path(row.name, f"{where}.name") if row.name else (),
        requests=_path(row.requests, f"{where}.requests") if row.requests else (),
        required=tuple(_path(one, f"{where}.required") for one in row.required),
    )


def _path(text: str, where: str) -> Path:
    if not _PATH.fullmatch(text):
        raise UserError(f"{where}: {text[:63]!r} is not a path; write field names with dots, for example spec.suspend")
    return tuple(_PARTS.findall(text))
