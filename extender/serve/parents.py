"""The webhook that lets a queue on a Deployment, StatefulSet or ReplicaSet reach its pods. Sans-IO.

The words of the object's own metadata (queue and priority class) are written into its pod template, from where its
controller copies them into each pod; the pods then go the way of all pods. Nothing else is done to the object, and one
without a queue, or made by another controller, is not touched. Source: jobs specification, section 7.
"""

from typing import Any

import msgspec

from extender.model.pods import PRIORITY_CLASS, QUEUE_NAME
from extender.serve.http import Reply, refuse
from extender.serve.marks import escape
from extender.serve.review import Operation, Outcome, write_review

Tree = dict[str, Any]
KINDS = frozenset({"Deployment", "StatefulSet", "ReplicaSet"})


class _Kind(msgspec.Struct, frozen=True):
    group: str = ""
    kind: str = ""


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


class _Request(msgspec.Struct, rename="camel"):
    uid: str
    kind: _Kind = _Kind()
    operation: str = ""
    sub_resource: str = ""
    object: _Object | None = None


class _Review(msgspec.Struct):
    request: _Request


_REVIEW = msgspec.json.Decoder(_Review)
_NONE: dict[str, str] = {}


def mutate(body: bytes) -> Reply:
    """POST: write the queue of an object into its pod template."""
    try:
        request = _REVIEW.decode(body).request
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        return refuse(400, f"not an AdmissionReview: {error}")
    concerns = request.kind.group == "apps" and request.kind.kind in KINDS and not request.sub_resource
    outcome = Outcome()
    if concerns and request.object is not None and request.operation in ("CREATE", "UPDATE"):
        outcome = Outcome(patch=tuple(_carried(request.object)))
    return Reply(200, write_review(request.uid, outcome), "changed" if outcome.patch else "allowed")


def _carried(found: _Object) -> list[Operation]:
    metadata, template = found.metadata or _Metadata(), found.spec.template if found.spec else None
    queue = _word(metadata, QUEUE_NAME)
    if template is None or not queue or any(owner.controller for owner in metadata.owner_references or ()):
        return []
    inner = template.metadata or _Metadata()
    operations: list[Operation] = []
    if template.metadata is None:
        operations.append({"op": "add", "path": "/spec/template/metadata", "value": {}})
    if _word(inner, QUEUE_NAME) != queue:
        operations.append(_put("annotations", inner.annotations, QUEUE_NAME, queue))
    priority = (metadata.labels or _NONE).get(PRIORITY_CLASS) or (metadata.annotations or _NONE).get(PRIORITY_CLASS)
    if priority and (inner.labels or _NONE).get(PRIORITY_CLASS) != priority:
        operations.append(_put("labels", inner.labels, PRIORITY_CLASS, priority))
    return operations


def _put(field: str, existing: dict[str, str] | None, key: str, value: str) -> Operation:
    path = f"/spec/template/metadata/{field}"
    if not existing:
        return {"op": "add", "path": path, "value": {key: value}}
    return {"op": "add", "path": f"{path}/{escape(key)}", "value": value}


def _word(metadata: _Metadata, key: str) -> str:
    return (metadata.annotations or _NONE).get(key) or (metadata.labels or _NONE).get(key, "")
