"""The webhook that lets a queue on a Deployment, StatefulSet or ReplicaSet reach its pods. Sans-IO.

The words of the object's own metadata (queue and priority class) are written into its pod template, from where its
controller copies them into each pod; the pods then go the way of all pods. Those of a StatefulSet are marked besides,
as parts of a whole. How many they are is not written: a change of scale must not change the template. Nothing else is
done to the object, and one without a queue, or made by another controller, is not touched. Source: jobs specification,
section 7; ADR 0062.
"""

from typing import Any

import msgspec

from extender.model.errors import UserError
from extender.model.jobs import UNIT_ANNOTATION
from extender.model.pods import POD_GROUP_NAME, PRIORITY_CLASS, QUEUE_NAME, UNIT_STATEFUL_SET
from extender.serve.envelope import Question, read
from extender.serve.http import Reply, refuse
from extender.serve.marks import escape
from extender.serve.review import Operation, Outcome, write_review

Tree = dict[str, Any]
KINDS = frozenset({"Deployment", "StatefulSet", "ReplicaSet"})


class _Owner(msgspec.Struct):
    controller: bool | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None


class _Template(msgspec.Struct):
    metadata: _Metadata | None = None


class _Spec(msgspec.Struct):
    template: _Template | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata | None = None
    spec: _Spec | None = None


_REVIEW = msgspec.json.Decoder(Question[_Object])
_NONE: dict[str, str] = {}


def mutate(body: bytes) -> Reply:
    """POST: write the queue of an object into its pod template."""
    try:
        request = read(_REVIEW, body)
    except UserError as error:
        return refuse(400, str(error))
    concerns = request.kind.group == "apps" and request.kind.kind in KINDS and not request.sub_resource
    outcome = Outcome()
    if concerns and request.object is not None and request.operation in ("CREATE", "UPDATE"):
        whole = request.kind.kind == "StatefulSet"
        outcome = Outcome(patch=tuple(_carried(request.object, whole=whole, new=request.operation == "CREATE")))
    return Reply(200, write_review(request.uid, outcome), "changed" if outcome.patch else "allowed")


def _carried(found: _Object, *, whole: bool, new: bool) -> list[Operation]:
    metadata, template = found.metadata or _Metadata(), found.spec.template if found.spec else None
    queue = _word(metadata, QUEUE_NAME)
    if template is None or not queue or any(owner.controller for owner in metadata.owner_references or ()):
        return []
    inner = template.metadata or _Metadata()
    operations: list[Operation] = []
    if template.metadata is None:
        operations.append({"op": "add", "path": "/spec/template/metadata", "value": {}})
    named = _word(inner, QUEUE_NAME) == queue
    annotations = {} if named else {QUEUE_NAME: queue}
    # A template that has its queue already is left alone, or the next edit of the object would replace all its pods.
    if whole and (new or not named) and _is_for_itself(inner):
        annotations[UNIT_ANNOTATION] = UNIT_STATEFUL_SET
    operations += _put("annotations", inner.annotations, annotations)
    priority = (metadata.labels or _NONE).get(PRIORITY_CLASS) or (metadata.annotations or _NONE).get(PRIORITY_CLASS)
    if priority and (inner.labels or _NONE).get(PRIORITY_CLASS) != priority:
        operations += _put("labels", inner.labels, {PRIORITY_CLASS: priority})
    return operations


def _is_for_itself(inner: _Metadata) -> bool:
    """Whether its pods are of no group by annotations, and not marked yet."""
    return not _word(inner, POD_GROUP_NAME) and UNIT_ANNOTATION not in (inner.annotations or _NONE)


def _put(field: str, existing: dict[str, str] | None, pairs: dict[str, str]) -> list[Operation]:
    path = f"/spec/template/metadata/{field}"
    if not existing:
        return [{"op": "add", "path": path, "value": pairs}] if pairs else []
    return [{"op": "add", "path": f"{path}/{escape(key)}", "value": value} for key, value in pairs.items()]


def _word(metadata: _Metadata, key: str) -> str:
    return (metadata.annotations or _NONE).get(key) or (metadata.labels or _NONE).get(key, "")
