"""The table of what we read: path, selectors, and the codec that turns objects into facts."""

from collections.abc import Mapping
from typing import Final, Protocol

import msgspec

from extender.kube.client import PARTIAL, PARTIAL_LIST
from extender.kube.decode_jobs import POD_PRIORITY_CLASSES
from extender.kube.decode_jobs import codec as job_codec
from extender.kube.decode_nodes import CODEC as NODES
from extender.kube.decode_owners import POD_GROUPS, STATEFUL_SETS
from extender.kube.decode_pods import CODEC as PODS
from extender.kube.decode_quota import (
    CLUSTER_QUEUES,
    COHORTS,
    FLAVORS,
    LOCAL_QUEUES,
    NAMESPACES,
    PRIORITY_CLASSES,
)
from extender.kube.reflector import Codec
from extender.model.errors import UNREADABLE, Gone
from extender.model.jobs import Kind

KUEUE_GROUP: Final = "kueue.x-k8s.io"
KUEUE_VERSION: Final = "v1beta2"
POD_GROUP_VERSION: Final = "scheduling.k8s.io/v1alpha2"


KUEUE_VERSIONS: Final = ("v1beta2", "v1beta1")
"""What we understand, newest first."""


class _Version(msgspec.Struct):
    version: str = ""


class _Group(msgspec.Struct):
    versions: list[_Version] | None = None


class Api(Protocol):
    """What the discovery of versions needs of the client."""

    async def get(self, path: str) -> bytes:
        """The body of *path*."""


async def kueue_version(api: Api) -> str:
    """The newest version of Kueue's API that the cluster serves and we understand; ours, while it serves none.

    Raises: ExtenderError, when the API server cannot be asked.
    """
    try:
        group = msgspec.json.decode(await api.get(f"/apis/{KUEUE_GROUP}"), type=_Group)
    except (Gone, *UNREADABLE):
        return KUEUE_VERSION
    served = {one.version for one in group.versions or ()}
    return next((version for version in KUEUE_VERSIONS if version in served), KUEUE_VERSION)


class Resource(msgspec.Struct, frozen=True):
    """One kind of object to list and watch.

    ``partial``: metadata is enough. ``optional``: a cluster that does not serve it counts as having none.
    """

    name: str
    path: str
    codec: Codec
    params: Mapping[str, str] = {}
    partial: bool = False
    optional: bool = False

    @property
    def accept(self) -> str:
        """The Accept header of a watch."""
        return PARTIAL if self.partial else ""

    @property
    def accept_list(self) -> str:
        """The Accept header of a list."""
        return PARTIAL_LIST if self.partial else ""

    @property
    def grant(self) -> str:
        """The permission that reading it needs, in words of RBAC."""
        group = self.path.split("/")[2] if self.path.startswith("/apis/") else ""
        return f'verbs [list, watch] on resource "{self.name}" of apiGroup "{group}"'


def _selectors(labels: str, fields: str) -> dict[str, str]:
    chosen = {"labelSelector": labels, "fieldSelector": fields}
    return {key: value for key, value in chosen.items() if value}


def pods(*, labels: str = "", fields: str = "") -> Resource:
    """Pods that concern us; the selectors narrow what the API server sends.

    By default all are read and those without a queue, our gate, label or admission are skipped: a pod that was created
    while the webhook was away carries no label of ours, and must still be taken in. With
    ``labels="cohort-extender.io/managed=true"`` the API server sends less, and such pods stay unseen.
    """
    return Resource("pods", "/api/v1/pods", PODS, _selectors(labels, fields))


def nodes() -> Resource:
    """All nodes."""
    return Resource("nodes", "/api/v1/nodes", NODES)


def namespaces() -> Resource:
    """All namespaces, for their labels."""
    return Resource("namespaces", "/api/v1/namespaces", NAMESPACES, partial=True)


def owners() -> tuple[Resource, ...]:
    """What groups of pods hang on. PodGroups exist in few clusters yet (1.36, alpha)."""
    return (
        Resource("statefulsets", "/apis/apps/v1/statefulsets", STATEFUL_SETS),
        Resource("podgroups", f"/apis/{POD_GROUP_VERSION}/podgroups", POD_GROUPS, optional=True),
    )


def quota(version: str = KUEUE_VERSION) -> tuple[Resource, ...]:
    """Kueue's quota objects, in the order in which they refer to each other."""
    base = f"/apis/{KUEUE_GROUP}/{version}"
    return (
        Resource("resourceflavors", f"{base}/resourceflavors", FLAVORS),
        Resource("cohorts", f"{base}/cohorts", COHORTS),
        Resource("clusterqueues", f"{base}/clusterqueues", CLUSTER_QUEUES),
        Resource("localqueues", f"{base}/localqueues", LOCAL_QUEUES),
        Resource("workloadpriorityclasses", f"{base}/workloadpriorityclasses", PRIORITY_CLASSES),
    )


def jobs(kinds: tuple[Kind, ...]) -> tuple[Resource, ...]:
    """Jobs of these kinds, and the priority classes that their templates name. A kind may be installed later."""
    rows = [
        Resource(
            kind.name,
            f"/apis/{kind.api_version}/{kind.plural}",
            job_codec(kind),
            optional=not kind.is_batch_job,
        )
        for kind in kinds
    ]
    return (Resource("priorityclasses", "/apis/scheduling.k8s.io/v1/priorityclasses", POD_PRIORITY_CLASSES), *rows)


def everything(version: str = KUEUE_VERSION, *, pod_labels: str = "", pod_fields: str = "") -> tuple[Resource, ...]:
    """All that the service reads; every one of them must be synced before the first decision."""
    return (*quota(version), namespaces(), nodes(), *owners(), pods(labels=pod_labels, fields=pod_fields))
