"""Who may touch our marks, and what a queued pod may say. Twin of ``manifests/components/policy-guard/pods.yaml``.

Rules about groups and names are asked at creation and when the words change, so that a pod from before the installation
can still be updated. Source: pods specification, section 3; pod gates specification, section 12.
"""

import re

from extender.model.pods import (
    ADMISSION_ANNOTATION,
    GATE,
    MANAGED_LABEL,
    POD_GROUP_NAME,
    POD_GROUP_TOTAL_COUNT,
    PRIORITY_CLASS,
    QUEUE_NAME,
)
from extender.serve.marks import MIRROR_ANNOTATION
from extender.serve.review import Outcome, Pod

NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_COUNT = re.compile(r"[1-9][0-9]{0,8}")
NAMING = "lower-case letters, digits, '-' and '.'"


def check(pod: Pod, old: Pod | None, *, by_us: bool) -> Outcome:
    """Whether *pod* may be created (*old* None), or become what it is from *old*."""
    forbidden = "" if by_us else _forgery(pod, old)
    if forbidden:
        return Outcome(denied=forbidden, code=403)
    return Outcome(denied=_labels(pod, old) or _words(pod, old) or _group(pod, old), code=422)


def _forgery(pod: Pod, old: Pod | None) -> str:
    before = old.annotations.get(ADMISSION_ANNOTATION) if old else None
    if pod.annotations.get(ADMISSION_ANNOTATION) != before:
        return f"the annotation {ADMISSION_ANNOTATION} is written by cohort-extender only"
    if old is None:
        return ""
    if GATE in old.gates and GATE not in pod.gates:
        return (
            f"the scheduling gate {GATE} is removed by cohort-extender only; delete the pod, or wait for its admission"
        )
    if pod.labels.get(MANAGED_LABEL) != old.labels.get(MANAGED_LABEL):
        return f"the label {MANAGED_LABEL} is written by cohort-extender only"
    return ""


def _labels(pod: Pod, old: Pod | None) -> str:
    value = pod.labels.get(MANAGED_LABEL, "true")
    if value != "true" and (old is None or value != old.labels.get(MANAGED_LABEL)):
        return f'the label {MANAGED_LABEL} can only be "true"'
    if old is None and pod.node and pod.word(QUEUE_NAME) and MIRROR_ANNOTATION not in pod.annotations:
        return "a pod that names a queue cannot choose its node by spec.nodeName; use a nodeSelector"
    return ""


def _words(pod: Pod, old: Pod | None) -> str:
    queue = pod.word(QUEUE_NAME)
    if old is None:
        if queue and not NAME.fullmatch(queue):
            return f"{QUEUE_NAME} is not the name of a LocalQueue ({NAMING})"
        return ""
    if MANAGED_LABEL not in old.labels:
        return ""
    gated = GATE in old.gates
    if queue != old.word(QUEUE_NAME) and not gated and not pod.ended:
        return f"{QUEUE_NAME} cannot change once the pod is admitted; delete it and create it in the other queue"
    now, before = _priority_class(pod), _priority_class(old)
    if now != before and not (now and (before or gated)):
        return f"{PRIORITY_CLASS} can be changed, but not removed, nor added once the pod is admitted"
    return ""


def _priority_class(pod: Pod) -> str:
    return pod.labels.get(PRIORITY_CLASS) or pod.annotations.get(PRIORITY_CLASS, "")


def _group(pod: Pod, old: Pod | None) -> str:
    group, total = pod.word(POD_GROUP_NAME), pod.annotations.get(POD_GROUP_TOTAL_COUNT, "")
    if old is not None:
        before = old.word(POD_GROUP_NAME)
        if before == group and old.annotations.get(POD_GROUP_TOTAL_COUNT, "") == total:
            return ""
        if before and before != group:
            return f"{POD_GROUP_NAME} cannot change once it is set"
    if bool(group) != bool(total):
        return f"{POD_GROUP_NAME} and {POD_GROUP_TOTAL_COUNT} come together or not at all"
    if group and not NAME.fullmatch(group):
        return f"{POD_GROUP_NAME} is not a valid name ({NAMING})"
    if total and not _COUNT.fullmatch(total):
        return f"{POD_GROUP_TOTAL_COUNT} must be a whole number from 1"
    return ""
