"""Why a workload waits: a closed list of codes, each with its numbers and one sentence.

The codes are the reasons of conditions and events; the sentence is rendered from the fields, so text and numbers never
disagree. ``docs/reasons.md`` lists every code with its cure. Source: planning specification, section 1.
"""

from enum import StrEnum

import msgspec

from extender.model.amounts import format_amount
from extender.model.names import ResourceName

Field = int | str


class ReasonCode(StrEnum):
    """One word per cause, grouped by who can change it: an edit (A), a holder (B), time (C), capacity (D)."""

    # A: needs an edit
    QUEUE_NOT_FOUND = "QueueNotFound"
    QUEUE_INACTIVE = "QueueInactive"
    NAMESPACE_NOT_ALLOWED = "NamespaceNotAllowed"
    REQUEST_INVALID = "RequestInvalid"
    RESOURCE_NOT_COVERED = "ResourceNotCovered"
    NO_MATCHING_FLAVOR = "NoMatchingFlavor"
    EXCEEDS_MAX_QUOTA = "ExceedsMaxQuota"
    # B: held on purpose
    STOPPED = "Stopped"
    DEACTIVATED = "Deactivated"
    FOREIGN_GATE = "ForeignGate"
    GANG_INCOMPLETE = "GangIncomplete"
    BACK_OFF = "BackOff"
    CHECK_PENDING = "CheckPending"
    EXCESS_POD = "ExcessPod"
    ADMITTED_IN_PART = "AdmittedInPart"
    UNCOUNTED = "Uncounted"
    # C: in motion
    VICTIMS_LEAVING = "VictimsLeaving"
    PODS_LEAVING = "PodsLeaving"
    WRITE_RETRY = "WriteRetry"
    PODS_NOT_READY = "PodsNotReady"
    # D: capacity
    BEHIND_STRICT_HEAD = "BehindStrictHead"
    BEHIND_PRIORITY = "BehindPriority"
    RESERVED_FOR_PREEMPTOR = "ReservedForPreemptor"
    CHURN_BUDGET = "ChurnBudget"
    QUOTA_USED = "QuotaUsed"
    BORROWING_LIMIT = "BorrowingLimit"
    LENDING_LIMIT = "LendingLimit"
    COHORT_EXHAUSTED = "CohortExhausted"
    NOT_EVALUATED = "NotEvaluated"


_SENTENCES: dict[ReasonCode, str] = {
    ReasonCode.QUEUE_NOT_FOUND: "no LocalQueue {queue} in namespace {namespace}",
    ReasonCode.QUEUE_INACTIVE: "ClusterQueue {cluster_queue} is inactive: {cause}",
    ReasonCode.NAMESPACE_NOT_ALLOWED: "namespace {namespace} is not selected by ClusterQueue {cluster_queue}",
    ReasonCode.REQUEST_INVALID: "{problem}",
    ReasonCode.RESOURCE_NOT_COVERED: "ClusterQueue {cluster_queue} has no quota for {resource} (covers {covered})",
    ReasonCode.NO_MATCHING_FLAVOR: "none of the flavors {tried} fits; nearest is {flavor}: {clause}",
    ReasonCode.EXCEEDS_MAX_QUOTA: (
        "needs {need} {resource} of {flavor}, ClusterQueue {cluster_queue} can never have over {max}"
    ),
    ReasonCode.STOPPED: "{object} is on {policy}",
    ReasonCode.DEACTIVATED: "stopped by {by}",
    ReasonCode.FOREIGN_GATE: "waits for gates {gates} of others; holds no quota",
    ReasonCode.GANG_INCOMPLETE: "{have} of {want} pods of group {group} exist",
    ReasonCode.BACK_OFF: "attempt {attempt} at {until}: {cause}",
    ReasonCode.CHECK_PENDING: "AdmissionCheck {checks} pending",
    ReasonCode.EXCESS_POD: "group {group} has its {total} pods already; delete this one or raise the total count",
    ReasonCode.ADMITTED_IN_PART: "group {group} was admitted with {count} of its {total} pods, as its minimum allows",
    ReasonCode.UNCOUNTED: "runs without an admission and uses no quota: {cause}",
    ReasonCode.VICTIMS_LEAVING: "{left} of {victims} preempted workloads have not left yet",
    ReasonCode.PODS_LEAVING: "{left} pods of its last run have not ended yet",
    ReasonCode.WRITE_RETRY: "admitted, but the write was refused ({status}); trying again",
    ReasonCode.PODS_NOT_READY: "admission waits for {blocker} to be ready",
    ReasonCode.BEHIND_STRICT_HEAD: "StrictFIFO: {position} in ClusterQueue {cluster_queue}, behind {head}",
    ReasonCode.BEHIND_PRIORITY: "{ahead} workloads of priority {priority} or more go first",
    ReasonCode.RESERVED_FOR_PREEMPTOR: "{amount} {resource} of {flavor} is held for {preemptor}, which goes first",
    ReasonCode.CHURN_BUDGET: "may reclaim {amount}, but {queue} used {spent} of {cap} evictions an hour",
    ReasonCode.QUOTA_USED: (
        "ClusterQueue {cluster_queue} uses {used} of its {nominal} {resource} of {flavor}, {short} more needed"
    ),
    ReasonCode.BORROWING_LIMIT: (
        "{node} has borrowed {borrowed} of at most {limit} {resource} of {flavor}, {short} more needed"
    ),
    ReasonCode.LENDING_LIMIT: "{short} more {resource} of {flavor} needed; {idle} idle but kept by {queues}",
    ReasonCode.COHORT_EXHAUSTED: (
        "cohort {node} lends {quota} {resource} of {flavor}, {used} in use, {short} more needed"
    ),
    ReasonCode.NOT_EVALUATED: "not yet evaluated",
}

_LASTING: dict[ReasonCode, str] = {
    ReasonCode.BEHIND_STRICT_HEAD: "StrictFIFO: behind {head} in ClusterQueue {cluster_queue}",
    ReasonCode.BEHIND_PRIORITY: "others of priority {priority} or more go first",
}

_AMOUNTS = frozenset({"amount", "borrowed", "idle", "limit", "max", "need", "nominal", "quota", "short", "used"})


class Reason(msgspec.Struct, frozen=True, gc=False):
    """A code with its numbers. ``fields`` are name and value, in the order in which they were given."""

    code: ReasonCode
    fields: tuple[tuple[str, Field], ...] = ()

    def sentence(self, *, lasting: bool = False) -> str:
        """The reason as one sentence; amounts as people write them, by the unit of the field ``resource``.

        *lasting*: without the place in line, which is another one after every admission.
        """
        fields = dict(self.fields)
        resource = ResourceName(str(fields.get("resource", "")))
        for name, value in fields.items():
            if isinstance(value, int):
                if name in _AMOUNTS:
                    fields[name] = format_amount(value, resource)
                elif name == "position":
                    fields[name] = _ordinal(value)
        template = _LASTING.get(self.code, _SENTENCES[self.code]) if lasting else _SENTENCES[self.code]
        return template.format(**fields)


def _ordinal(number: int) -> str:
    teens = number % 100 in (11, 12, 13)
    return f"{number}{'th' if teens else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def reason(code: ReasonCode, **fields: Field) -> Reason:
    """A reason with named fields. Raises: KeyError, when the sentence needs a field that is missing."""
    made = Reason(code, tuple(fields.items()))
    made.sentence()
    return made
