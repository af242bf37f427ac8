"""Effects → requests: what is sent for each act, and nothing about when or how often.

Every request is safe to repeat. A pod is guarded by UID, an admission also by the version it was decided on.
Source: specification of gated pods, sections 3 and 13.
"""

import datetime
from typing import Any, Final

import msgspec
import orjson

from extender.kube.client import PatchType
from extender.kube.writes_jobs import condition_patch, job_patch, job_path
from extender.model.effects import (
    AdoptPod,
    Effect,
    EvictPod,
    RecordEvent,
    SetPodCondition,
    SetQueueStatus,
    UngatePod,
)
from extender.model.jobs import (
    PLACES_ANNOTATION,
    GrowJob,
    NudgePod,
    ReleaseJob,
    ResetStart,
    SetJobCondition,
    StartJob,
    StopJob,
    SuspendJob,
)
from extender.model.pods import ADMISSION_ANNOTATION, ADMITTED_CONDITION, ADOPTED_ANNOTATION, GATE, MANAGED_LABEL
from extender.model.quota import Toleration

FIELD_MANAGER: Final = "cohort-extender"
MESSAGE_LENGTH_MAX: Final = 1024
EVENT_NAME_LENGTH_MAX: Final = 220
_PLURALS: Final = {"ClusterQueue": "clusterqueues", "Cohort": "cohorts", "LocalQueue": "localqueues"}


class Request(msgspec.Struct, frozen=True):
    """What is sent. ``patch`` None: a POST."""

    path: str
    body: bytes
    patch: PatchType | None = None
    force: bool = False


def timestamp(now_s: float) -> str:
    """*now_s* (seconds since the epoch) as the API writes times: UTC, whole seconds."""
    return datetime.datetime.fromtimestamp(now_s, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_timestamp(now_s: float) -> str:
    """*now_s* as a MicroTime: UTC with exactly six digits."""
    return datetime.datetime.fromtimestamp(now_s, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def pod_path(namespace: str, name: str) -> str:
    """The path of a pod."""
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def request_for(effect: Effect, *, now_s: float, changes_status: bool, queue_api: str, identity: str) -> Request:
    """The request that carries out *effect*.

    *now_s*: seconds since the epoch. *changes_status*: a condition's status is not the one last written. *queue_api*:
    group and version of the quota objects. *identity*: who we are, for events.
    """
    match effect:
        case UngatePod():
            return Request(pod_path(effect.namespace, effect.name), _ungate(effect), PatchType.STRATEGIC)
        case AdoptPod():
            return Request(pod_path(effect.namespace, effect.name), _adopt(effect), PatchType.STRATEGIC)
        case EvictPod():
            return Request(f"{pod_path(effect.namespace, effect.name)}/eviction", _evict(effect))
        case SetPodCondition():
            body = _condition(effect, now_s if changes_status else None)
            return Request(f"{pod_path(effect.namespace, effect.name)}/status", body, PatchType.STRATEGIC)
        case RecordEvent():
            return Request(f"/api/v1/namespaces/{effect.namespace}/events", _event(effect, now_s, identity))
        case SetQueueStatus():
            return _queue_status(effect, queue_api)
        case NudgePod():
            metadata = {"uid": effect.uid, "annotations": {PLACES_ANNOTATION: str(effect.places)}}
            return Request(
                pod_path(effect.namespace, effect.name), orjson.dumps({"metadata": metadata}), PatchType.STRATEGIC
            )
        case ResetStart():
            return Request(f"{job_path(effect.ref)}/status", job_patch(effect), PatchType.JSON)
        case StartJob() | StopJob() | SuspendJob() | GrowJob() | ReleaseJob():
            return Request(job_path(effect.ref), job_patch(effect), PatchType.JSON)
        case SetJobCondition():
            body = condition_patch(effect, timestamp(now_s) if changes_status else None, MESSAGE_LENGTH_MAX)
            return Request(f"{job_path(effect.ref)}/status", body, PatchType.STRATEGIC)


def _ungate(effect: UngatePod) -> bytes:
    spec: dict[str, Any] = {"schedulingGates": [{"$patch": "delete", "name": GATE}]}
    if effect.node_selector:
        spec["nodeSelector"] = dict(effect.node_selector)
    if effect.tolerations is not None:
        spec["tolerations"] = [_toleration(one) for one in effect.tolerations]
    metadata = {
        "uid": effect.uid,
        "resourceVersion": effect.resource_version,
        "annotations": {ADMISSION_ANNOTATION: effect.admission},
    }
    return orjson.dumps({"metadata": metadata, "spec": spec})


def _adopt(effect: AdoptPod) -> bytes:
    annotations = {} if effect.again else {ADOPTED_ANNOTATION: "true"}
    if effect.admission is not None:
        annotations[ADMISSION_ANNOTATION] = effect.admission
    metadata = {
        "uid": effect.uid,
        "resourceVersion": effect.resource_version,
        "labels": {MANAGED_LABEL: "true"},
        "annotations": annotations,
    }
    return orjson.dumps({"metadata": metadata})


def _toleration(one: Toleration) -> dict[str, Any]:
    found = {"key": one.key, "operator": one.operator, "value": one.value, "effect": one.effect}
    written: dict[str, Any] = {key: value for key, value in found.items() if value}
    if one.seconds is not None:
        written["tolerationSeconds"] = one.seconds
    return written


def _evict(effect: EvictPod) -> bytes:
    return orjson.dumps(
        {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": effect.name, "namespace": effect.namespace},
            "deleteOptions": {"preconditions": {"uid": effect.uid}},
        }
    )


def _condition(effect: SetPodCondition, changed_s: float | None) -> bytes:
    condition = {
        "type": ADMITTED_CONDITION,
        "status": "True" if effect.status else "False",
        "reason": effect.reason,
        "message": effect.message[:MESSAGE_LENGTH_MAX],
    }
    if changed_s is not None:
        condition["lastTransitionTime"] = timestamp(changed_s)
    return orjson.dumps({"metadata": {"uid": effect.uid}, "status": {"conditions": [condition]}})


def _event(effect: RecordEvent, now_s: float, identity: str) -> bytes:
    when = timestamp(now_s)
    return orjson.dumps(
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{effect.name[:EVENT_NAME_LENGTH_MAX].rstrip('-.')}.{int(now_s * 1e9):x}",
                "namespace": effect.namespace,
            },
            "involvedObject": {
                "apiVersion": effect.api_version,
                "kind": effect.kind,
                "namespace": effect.namespace,
                "name": effect.name,
                "uid": effect.uid,
            },
            "type": "Warning" if effect.warning else "Normal",
            "reason": effect.reason,
            "message": effect.message[:MESSAGE_LENGTH_MAX],
            "firstTimestamp": when,
            "lastTimestamp": when,
            "count": 1,
            "source": {"component": FIELD_MANAGER},
            "reportingComponent": FIELD_MANAGER,
            "reportingInstance": identity,
        }
    )


def _queue_status(effect: SetQueueStatus, queue_api: str) -> Request:
    plural = _PLURALS[effect.kind]
    within = f"namespaces/{effect.namespace}/" if effect.namespace else ""
    metadata = {"name": effect.name, **({"namespace": effect.namespace} if effect.namespace else {})}
    body = orjson.dumps(
        {
            "apiVersion": queue_api,
            "kind": effect.kind,
            "metadata": metadata,
            "status": orjson.Fragment(effect.status),
        }
    )
    return Request(f"/apis/{queue_api}/{within}{plural}/{effect.name}/status", body, PatchType.APPLY, force=True)
