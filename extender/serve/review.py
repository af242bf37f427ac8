"""AdmissionReview ``admission.k8s.io/v1``: bytes to the pods in question, an outcome to bytes. No I/O.

The API server checks replies strictly: the same uid, exactly these versions, patch and patchType together. A patch that
does not apply is an error even under ``failurePolicy: Ignore``, so patches are built from what is seen to be there.
Source: webhooks specification, section 2.
"""

from base64 import b64encode
from typing import Final

import msgspec
import orjson

from extender.serve.envelope import API_VERSION, KIND, Question, read

BODY_MAX: Final = 7 * 1024 * 1024
"""Bytes. An object has at most about 1.5 MiB in etcd; an update carries two, with room for the envelope."""
_WARNING_MAX = 120

Operation = dict[str, object]
"""One RFC 6902 operation."""


class Named(msgspec.Struct):
    """Something with a name: a gate."""

    name: str = ""


class OwnerReference(msgspec.Struct):
    """An owner, and whether it controls the pod."""

    kind: str = ""
    controller: bool | None = None


class Metadata(msgspec.Struct, rename="camel"):
    """The metadata that decides."""

    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None


class Resources(msgspec.Struct):
    """The maps of one container, values left as they are (text or number)."""

    limits: dict[str, str | int | float] | None = None
    requests: dict[str, str | int | float] | None = None


class Container(msgspec.Struct):
    """One container."""

    resources: Resources | None = None


class Spec(msgspec.Struct, rename="camel"):
    """The spec that decides."""

    node_name: str | None = None
    scheduling_gates: list[Named] | None = None
    containers: list[Container] | None = None


class Status(msgspec.Struct):
    """The phase."""

    phase: str = ""


class Pod(msgspec.Struct):
    """A pod as the webhooks see it; each part may be missing or null."""

    metadata: Metadata | None = None
    spec: Spec | None = None
    status: Status | None = None

    @property
    def labels(self) -> dict[str, str]:
        """Its labels, empty if there are none."""
        return (self.metadata and self.metadata.labels) or {}

    @property
    def annotations(self) -> dict[str, str]:
        """Its annotations, empty if there are none."""
        return (self.metadata and self.metadata.annotations) or {}

    @property
    def owners(self) -> list[OwnerReference]:
        """Its owners."""
        return (self.metadata and self.metadata.owner_references) or []

    @property
    def gates(self) -> list[str]:
        """Its scheduling gates by name."""
        return [gate.name for gate in (self.spec and self.spec.scheduling_gates) or ()]

    @property
    def node(self) -> str:
        """The node it has, empty if it has none."""
        return (self.spec and self.spec.node_name) or ""

    @property
    def ended(self) -> bool:
        """Whether it has finished."""
        return self.status is not None and self.status.phase in ("Succeeded", "Failed")

    def word(self, key: str) -> str:
        """What the annotation *key* says, else the label, else nothing."""
        return self.annotations.get(key) or self.labels.get(key, "")


class Review(msgspec.Struct, frozen=True):
    """One question of the API server about a pod. ``uid`` names this round trip and nothing else."""

    uid: str
    operation: str
    namespace: str
    username: str
    pod: Pod | None
    old: Pod | None


class Outcome(msgspec.Struct, frozen=True):
    """What to answer. ``denied`` empty: allowed; ``patch`` only then, and only from a mutating webhook."""

    denied: str = ""
    code: int = 403
    patch: tuple[Operation, ...] = ()
    warnings: tuple[str, ...] = ()


_REVIEW = msgspec.json.Decoder(Question[Pod])


def read_review(body: bytes) -> Review:
    """The question. ``pod`` is None, when it is not about a pod itself (a subresource, another kind, a deletion).

    Raises: UserError, for anything that is no AdmissionReview v1.
    """
    request = read(_REVIEW, body)
    about_a_pod = request.is_about("", "Pod")
    return Review(
        uid=request.uid,
        operation=request.operation,
        namespace=request.namespace,
        username=request.user_info.username,
        pod=request.object if about_a_pod else None,
        old=request.old_object if about_a_pod else None,
    )


def write_review(uid: str, outcome: Outcome) -> bytes:
    """The reply to the question *uid*."""
    response: dict[str, object] = {"uid": uid, "allowed": not outcome.denied}
    if outcome.denied:
        reason = "Forbidden" if outcome.code == 403 else "Invalid"
        response["status"] = {"code": outcome.code, "message": outcome.denied, "reason": reason}
    elif outcome.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = b64encode(orjson.dumps(outcome.patch)).decode()
    if outcome.warnings:
        response["warnings"] = [warning[:_WARNING_MAX] for warning in outcome.warnings]
    return orjson.dumps({"apiVersion": API_VERSION, "kind": KIND, "response": response})
