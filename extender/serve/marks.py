"""The marks of a queued pod, as the smallest patch that adds those which are missing.

Gate, label and marker resource together (ADR 0030). Twin of the policy in ``manifests/components/policy-gate``; to run
after it, or twice, adds nothing.
"""

from extender.model.jobs import UNIT_ADMISSION_ANNOTATION, UNIT_ANNOTATION, UNIT_JOB
from extender.model.pods import GATE, MANAGED_LABEL, MARKER_RESOURCE, QUEUE_NAME
from extender.serve.review import Operation, Pod

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
"""On a static pod's image in the API server; the kubelet runs it whatever anybody says."""


def escape(key: str) -> str:
    """*key* as one segment of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def untouchable(pod: Pod) -> bool:
    """Whether a queue must leave the pod alone: it has its node already, or belongs to each node."""
    return bool(
        pod.node
        or MIRROR_ANNOTATION in pod.annotations
        or any(owner.kind == "DaemonSet" and owner.controller for owner in pod.owners)
    )


def is_of_a_job(pod: Pod) -> bool:
    """Whether the pod is part of a queued Job: it waits with it, and gets no gate once the Job has its admission.

    Which admission that is, filter looks at: a pod of an earlier one, or a forged one, gets no node.
    """
    return pod.annotations.get(UNIT_ANNOTATION) == UNIT_JOB


def mark(pod: Pod, *, default_queue: str) -> list[Operation]:
    """What makes *pod* a queued pod. *default_queue*: to be written as its queue, empty if it names one itself."""
    operations = []
    if default_queue:
        operations.append(_put("/metadata/annotations", pod.annotations, QUEUE_NAME, default_queue))
    if pod.labels.get(MANAGED_LABEL) != "true":
        operations.append(_put("/metadata/labels", pod.labels, MANAGED_LABEL, "true"))
    if GATE not in pod.gates and not (is_of_a_job(pod) and UNIT_ADMISSION_ANNOTATION in pod.annotations):
        operations.append(_gate(pod))
    return operations + _marker(pod)


def _put(path: str, existing: dict[str, str], key: str, value: str) -> Operation:
    # An absent map is added whole, since there is nothing yet to add a key to. An empty one may be replaced likewise.
    if not existing:
        return {"op": "add", "path": path, "value": {key: value}}
    return {"op": "add", "path": f"{path}/{escape(key)}", "value": value}


def _gate(pod: Pod) -> Operation:
    if not pod.gates:
        return {"op": "add", "path": "/spec/schedulingGates", "value": [{"name": GATE}]}
    return {"op": "add", "path": "/spec/schedulingGates/-", "value": {"name": GATE}}


def _marker(pod: Pod) -> list[Operation]:
    containers = (pod.spec and pod.spec.containers) or []
    if not containers:
        return []  # the API server refuses such a pod by itself
    path = "/spec/containers/0/resources"
    resources = containers[0].resources
    if resources is None:
        both = {MARKER_RESOURCE: "1"}
        return [{"op": "add", "path": path, "value": {"requests": both, "limits": both}}]
    operations: list[Operation] = []
    for name, amounts in (("requests", resources.requests), ("limits", resources.limits)):
        if not amounts:
            operations.append({"op": "add", "path": f"{path}/{name}", "value": {MARKER_RESOURCE: "1"}})
        elif amounts.get(MARKER_RESOURCE) not in ("1", 1):  # an amount of 0 would stop no other scheduler
            operations.append({"op": "add", "path": f"{path}/{name}/{escape(MARKER_RESOURCE)}", "value": "1"})
    return operations
