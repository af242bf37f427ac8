"""What groups of pods hang on: PodGroups of the API server's own scheduling group, and StatefulSets.

Of a PodGroup only the size of its gang is read; of a StatefulSet how many pods it has, and whether it makes them one
after the other, since a group by annotations can then never be complete. Source: Kubernetes API 1.36,
scheduling.k8s.io/v1alpha2 and apps/v1.
"""

import msgspec

from extender.kube.decode import Made, TypedCodec, milliseconds
from extender.kube.reflector import Held
from extender.kube.wire import MetaWire
from extender.model.events import Event, PodGroupGone, PodGroupSeen, StatefulSetGone, StatefulSetSeen
from extender.model.names import Namespace

ORDERED = "OrderedReady"


class _GangWire(msgspec.Struct, rename="camel"):
    min_count: int = 0


class _PolicyWire(msgspec.Struct):
    gang: _GangWire | None = None


class _PodGroupSpecWire(msgspec.Struct, rename="camel"):
    scheduling_policy: _PolicyWire | None = None


class _PodGroupWire(msgspec.Struct):
    metadata: MetaWire
    spec: _PodGroupSpecWire | None = None


class _OrdinalsWire(msgspec.Struct):
    start: int = 0


class _StatefulSetSpecWire(msgspec.Struct, rename="camel"):
    pod_management_policy: str | None = None
    replicas: int | None = None
    ordinals: _OrdinalsWire | None = None


class _StatefulSetWire(msgspec.Struct):
    metadata: MetaWire
    spec: _StatefulSetSpecWire | None = None


def _pod_group(wire: _PodGroupWire) -> Made:
    policy = wire.spec.scheduling_policy if wire.spec else None
    gang = policy.gang if policy else None
    meta = wire.metadata
    return PodGroupSeen(Namespace(meta.namespace), meta.name, max(0, gang.min_count) if gang else 0), ""


def _pod_group_gone(held: Held) -> Event:
    namespace, _, name = held.key.partition("/")
    return PodGroupGone(Namespace(namespace), name)


def _stateful_set(wire: _StatefulSetWire) -> Made:
    meta, spec = wire.metadata, wire.spec or _StatefulSetSpecWire()
    if meta.deletion_timestamp is not None:
        return StatefulSetGone(meta.uid), ""
    return StatefulSetSeen(
        uid=meta.uid,
        name=meta.name,
        ordered=(spec.pod_management_policy or ORDERED) == ORDERED,
        replicas=1 if spec.replicas is None else max(0, spec.replicas),
        start=max(0, spec.ordinals.start) if spec.ordinals else 0,
        created_ms=milliseconds(meta.creation_timestamp),
    ), ""


POD_GROUPS = TypedCodec(_PodGroupWire, make=_pod_group, gone=_pod_group_gone)
STATEFUL_SETS = TypedCodec(_StatefulSetWire, make=_stateful_set, gone=lambda held: StatefulSetGone(held.uid))
