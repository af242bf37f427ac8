"""Effects about Jobs → requests. Each is a JSON patch, since templates may be inside lists, where no merge reaches.

A guard is either the version that was seen (a stale one is a conflict, 409), or a ``test`` on what must still be there.
Parents that may be absent are written whole; what is known of the object says which are there.
"""

from typing import Any

import orjson

from extender.model.jobs import (
    ACTIVE_ANNOTATION,
    EVICTED_ANNOTATION,
    REQUEUE_ANNOTATION,
    GrowJob,
    JobAct,
    JobRef,
    ReleaseJob,
    ResetStart,
    SetJobCondition,
    StartJob,
    StopJob,
    SuspendJob,
    TemplateWrite,
)
from extender.model.pods import ADMISSION_ANNOTATION, ADMITTED_CONDITION, MANAGED_LABEL
from extender.model.quota import Toleration
from extender.model.trees import Path

Operation = dict[str, Any]
_ANNOTATIONS = "/metadata/annotations"


def job_path(ref: JobRef) -> str:
    """The path of a Job."""
    return f"/apis/{ref.api_version}/namespaces/{ref.namespace}/{ref.plural}/{ref.name}"


def job_patch(effect: JobAct) -> bytes:
    """The JSON patch that carries out *effect*; of ``ResetStart`` it is the patch of the status."""
    match effect:
        case StartJob():
            operations = _start(effect)
        case StopJob():
            operations = _stop(effect)
        case SuspendJob():
            operations = _suspend(effect)
        case GrowJob():
            operations = [
                _test("/metadata/uid", effect.uid),
                _test(_annotation(ADMISSION_ANNOTATION), effect.before),
                _add(_annotation(ADMISSION_ANNOTATION), effect.admission),
            ]
        case ResetStart():
            operations = [
                *_version(effect.uid, effect.resource_version),
                {"op": "remove", "path": "/status/startTime"},
            ]
        case ReleaseJob():
            operations = _release(effect)
    return orjson.dumps(operations)


def condition_patch(effect: SetJobCondition, changed: str | None, message_max: int) -> bytes:
    """The strategic merge patch of a Job's status: its list of conditions is merged by type, others' stay."""
    condition = {
        "type": ADMITTED_CONDITION,
        "status": "True" if effect.status else "False",
        "reason": effect.reason,
        "message": effect.message[:message_max],
    }
    if changed is not None:
        condition["lastTransitionTime"] = changed
    return orjson.dumps({"metadata": {"uid": effect.uid}, "status": {"conditions": [condition]}})


def _start(effect: StartJob) -> list[Operation]:
    operations = _version(effect.uid, effect.resource_version)
    operations += [one for template in effect.templates for one in _template(template)]
    if effect.annotated:
        operations.append(_add(_annotation(ADMISSION_ANNOTATION), effect.admission))
    else:
        operations.append(_add(_ANNOTATIONS, {ADMISSION_ANNOTATION: effect.admission}))
    if effect.was_evicted:
        operations.append(_remove(_annotation(EVICTED_ANNOTATION)))
    operations += _counts(effect.parallelism, effect.completions)
    return [*operations, _add(_pointer(effect.ref.suspend), value=False)]


def _stop(effect: StopJob) -> list[Operation]:
    operations = [
        _test("/metadata/uid", effect.uid),
        _test(_annotation(ADMISSION_ANNOTATION), effect.admission),
        _add(_pointer(effect.ref.suspend), value=True),
        _remove(_annotation(ADMISSION_ANNOTATION)),
        _add(_annotation(EVICTED_ANNOTATION), effect.admission),
        _add(_annotation(REQUEUE_ANNOTATION), effect.requeue),
    ]
    if effect.deactivate:
        operations.append(_add(_annotation(ACTIVE_ANNOTATION), "false"))
    return operations + _counts(effect.parallelism, effect.completions)


def _suspend(effect: SuspendJob) -> list[Operation]:
    path = effect.ref.suspend
    operations = _version(effect.uid, effect.resource_version)
    if effect.suspend_parent:
        operations.append(_add(_pointer(path), value=True))
    else:
        operations.append(_add(_pointer(path[:-1]), {path[-1]: True}))
    if effect.labelled:
        operations.append(_add(f"/metadata/labels/{_escape(MANAGED_LABEL)}", "true"))
    else:
        operations.append(_add("/metadata/labels", {MANAGED_LABEL: "true"}))
    return operations


def _release(effect: ReleaseJob) -> list[Operation]:
    operations = _version(effect.uid, effect.resource_version)
    operations += [one for template in effect.templates for one in _template(template)]
    operations += [_remove(_annotation(key)) for key in effect.annotations]
    if effect.label:
        operations.append(_remove(f"/metadata/labels/{_escape(MANAGED_LABEL)}"))
    return operations


def _template(template: TemplateWrite) -> list[Operation]:
    base = _pointer(template.path)
    labels, annotations = dict(template.labels), dict(template.annotations)
    operations: list[Operation] = []
    if template.has_metadata:
        operations += [_add(f"{base}/metadata/labels", labels), _add(f"{base}/metadata/annotations", annotations)]
    else:
        operations.append(_add(f"{base}/metadata", {"labels": labels, "annotations": annotations}))
    operations.append(_add(f"{base}/spec/nodeSelector", dict(template.node_selector)))
    if template.tolerations is not None:
        operations.append(_add(f"{base}/spec/tolerations", [toleration(one) for one in template.tolerations]))
    return operations


def toleration(one: Toleration) -> dict[str, Any]:
    """A toleration as the API has it, without what is empty."""
    found = {"key": one.key, "operator": one.operator, "value": one.value, "effect": one.effect}
    written: dict[str, Any] = {key: value for key, value in found.items() if value}
    if one.seconds is not None:
        written["tolerationSeconds"] = one.seconds
    return written


def _counts(parallelism: int | None, completions: int | None) -> list[Operation]:
    counts = (("parallelism", parallelism), ("completions", completions))
    return [_add(f"/spec/{field}", count) for field, count in counts if count is not None]


def _version(uid: str, resource_version: str) -> list[Operation]:
    return [_test("/metadata/uid", uid), _add("/metadata/resourceVersion", resource_version)]


def _test(path: str, value: str) -> Operation:
    return {"op": "test", "path": path, "value": value}


def _add(path: str, value: object) -> Operation:
    return {"op": "add", "path": path, "value": value}


def _remove(path: str) -> Operation:
    return {"op": "remove", "path": path}


def _annotation(key: str) -> str:
    return f"{_ANNOTATIONS}/{_escape(key)}"


def _pointer(path: Path) -> str:
    return "".join(f"/{_escape(part)}" for part in path)


def _escape(part: str) -> str:
    return part.replace("~", "~0").replace("/", "~1")
