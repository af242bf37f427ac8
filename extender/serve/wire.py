"""The wire of the extender: bytes of kube-scheduler to questions, verdicts to bytes. No I/O.

Go writes its field names as they are (``NodeNames``, ``NumPDBViolations``), all of them, null where nothing is set. Of
the pod only what a verdict may need is decoded; the rest is skipped, not built. Source: extender protocol, section 3.
"""

from typing import Annotated, Final, TypeVar

import msgspec
import orjson

from extender.model.errors import UserError
from extender.model.jobs import UNIT_ADMISSION_ANNOTATION, UNIT_ANNOTATION, UNIT_JOB
from extender.model.names import Namespace, PodUid
from extender.model.pods import ADMISSION_ANNOTATION, MANAGED_LABEL, QUEUE_NAME
from extender.model.questions import PlacementQuestion, PodInQuestion, PreemptionQuestion
from extender.model.verdicts import FilterVerdict, NodeScore, NodeVictims

BODY_MAX: Final = 8 * 1024 * 1024
"""Bytes. 5,000 node names are 0.2 MB; the rest is room for large pods and long lists of victims."""

_T = TypeVar("_T")

_NODES_MODE = "this extender keeps the nodes itself: set nodeCacheCapable: true in its KubeSchedulerConfiguration"


class _Owner(msgspec.Struct):
    uid: str = ""
    controller: bool | None = None


class _Metadata(msgspec.Struct):
    uid: str = ""
    name: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[_Owner] | None = msgspec.field(default=None, name="ownerReferences")


class _Spec(msgspec.Struct, rename="camel"):
    node_selector: dict[str, str] | None = None


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec


class _Args(msgspec.Struct, rename="pascal"):
    pod: _Pod
    node_names: list[str] | None = None


class _MetaPod(msgspec.Struct, rename={"uid": "UID"}):
    uid: str


class _MetaVictims(msgspec.Struct, rename={"pods": "Pods", "budget_violations": "NumPDBViolations"}):
    pods: list[_MetaPod] | None = None
    budget_violations: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0


class _PreemptionArgs(msgspec.Struct, rename="pascal"):
    pod: _Pod
    node_name_to_meta_victims: dict[str, _MetaVictims | None] | None = None


_ARGS = msgspec.json.Decoder(_Args)
_PREEMPTION_ARGS = msgspec.json.Decoder(_PreemptionArgs)


def read_placement(body: bytes) -> PlacementQuestion:
    """The question of filter or prioritize. Raises: UserError, for junk and for a scheduler that sends whole nodes."""
    args = _decode(_ARGS, body)
    if args.node_names is None:
        raise UserError(_NODES_MODE)
    return PlacementQuestion(_pod(args.pod), args.node_names)


def read_preemption(body: bytes) -> PreemptionQuestion:
    """The question of preempt. Raises: UserError, for junk and for a scheduler that sends whole pods as victims."""
    args = _decode(_PREEMPTION_ARGS, body)
    if args.node_name_to_meta_victims is None:
        raise UserError(_NODES_MODE)
    candidates = {
        node: NodeVictims([], 0)
        if victims is None
        else NodeVictims([pod.uid for pod in victims.pods or ()], victims.budget_violations)
        for node, victims in args.node_name_to_meta_victims.items()
    }
    return PreemptionQuestion(_pod(args.pod), candidates)


def write_verdict(verdict: FilterVerdict) -> bytes:
    """The reply of filter."""
    return orjson.dumps(
        {
            "Nodes": None,
            "NodeNames": verdict.nodes,
            "FailedNodes": verdict.failed,
            "FailedAndUnresolvableNodes": verdict.unresolvable,
            "Error": "",
        }
    )


def write_refusal(why: str) -> bytes:
    """The reply of filter when it cannot answer; the scheduler tries the pod again after its error back-off."""
    return orjson.dumps(
        {"Nodes": None, "NodeNames": None, "FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Error": why}
    )


def write_scores(scores: list[NodeScore]) -> bytes:
    """The reply of prioritize, a bare list."""
    return orjson.dumps([{"Host": score.host, "Score": score.score} for score in scores])


def write_victims(verdict: dict[str, NodeVictims], question: PreemptionQuestion) -> bytes:
    """The reply of preempt.

    A node without victims is an error of the whole preemption up to Kubernetes 1.37 unless it came in without any, so
    such a node is left out, which strikes it. Null is never written: it would crash the scheduler.
    """
    return orjson.dumps(
        {
            "NodeNameToMetaVictims": {
                node: {"Pods": [{"UID": uid} for uid in victims.uids], "NumPDBViolations": victims.budget_violations}
                for node, victims in verdict.items()
                if victims.uids or (node in question.candidates and not question.candidates[node].uids)
            }
        }
    )


def _decode(decoder: msgspec.json.Decoder[_T], body: bytes) -> _T:
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise UserError(f"the request is not what kube-scheduler sends: {error}") from error


def _pod(pod: _Pod) -> PodInQuestion:
    metadata = pod.metadata
    labels = metadata.labels or {}
    annotations = metadata.annotations or {}
    selector = pod.spec.node_selector
    unit = annotations.get(UNIT_ANNOTATION) == UNIT_JOB
    return PodInQuestion(
        uid=PodUid(metadata.uid),
        namespace=Namespace(metadata.namespace),
        name=metadata.name,
        managed=labels.get(MANAGED_LABEL) == "true",
        queue=annotations.get(QUEUE_NAME) or labels.get(QUEUE_NAME, ""),
        admission=annotations.get(ADMISSION_ANNOTATION),
        node_selector=tuple(sorted(selector.items())) if selector else (),
        unit=unit,
        unit_admission=annotations.get(UNIT_ADMISSION_ANNOTATION, "") if unit else "",
        controller=_controller(metadata) if unit else "",
    )


def _controller(metadata: _Metadata) -> str:
    return next((owner.uid for owner in metadata.owner_references or () if owner.controller), "")
