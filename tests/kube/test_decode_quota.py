"""Quota objects of either version, and what is said about wrong ones."""

import orjson
import pytest
import yaml

from extender.kube.decode_quota import (
    CLUSTER_QUEUES,
    COHORTS,
)
from extender.model.amounts import UNLIMITED
from extender.model.quota import (
    ClusterQueue,
    FairWeight,
    FlavorQuotas,
    Fungibility,
    Preemption,
    PreemptionPolicy,
    Preference,
    QueueingStrategy,
    Quota,
    Requirement,
    ResourceGroup,
    Selector,
    StopPolicy,
)

GPU = "nvidia.com/gpu"


def raw(name, spec, *, namespace="", **more):
    meta = {
        "name": name,
        "uid": f"uid-{name}",
        "resourceVersion": "7",
        **({"namespace": namespace} if namespace else {}),
    }
    read = yaml.safe_load(spec) if isinstance(spec, str) else spec
    return orjson.dumps({"metadata": meta, "spec": read, **more})


def queue(spec):
    return CLUSTER_QUEUES.item(raw("training", spec)).fact.cluster_queue


def cohort(spec):
    return COHORTS.item(raw("lab", spec)).fact.cohort


def group(covered, **flavors):
    return ResourceGroup(
        covered=tuple(covered),
        flavors=tuple(FlavorQuotas(name, tuple(zip(covered, quotas, strict=True))) for name, quotas in flavors.items()),
    )


def test_the_articles_cluster_queue_reads_as_written():
    got = queue("""
      cohort: research-division
      resourceGroups:
      - coveredResources: ["nvidia.com/gpu"]
        flavors:
        - {name: a100-high-end, resources: [{name: nvidia.com/gpu, nominalQuota: 10}]}
        - {name: a100-mig-10, resources: [{name: nvidia.com/gpu, nominalQuota: 20}]}
    """)

    assert got == ClusterQueue(
        name="training",
        cohort="research-division",
        resource_groups=(group([GPU], **{"a100-high-end": [Quota(10)], "a100-mig-10": [Quota(20)]}),),
    )


def test_every_field_of_v1beta2():
    got = queue("""
      cohortName: lab
      queueingStrategy: StrictFIFO
      namespaceSelector:
        matchLabels: {team: vision}
        matchExpressions: [{key: tier, operator: In, values: [a, b]}, {key: old, operator: DoesNotExist}]
      flavorFungibility: {whenCanBorrow: TryNextFlavor, whenCanPreempt: TryNextFlavor,
                          preference: PreemptionOverBorrowing}
      preemption:
        reclaimWithinCohort: Any
        withinClusterQueue: LowerOrNewerEqualPriority
        borrowWithinCohort: {policy: LowerPriority, maxPriorityThreshold: 100}
      admissionChecksStrategy: {admissionChecks: [{name: prov, onFlavors: [spot]}, {name: budget}]}
      stopPolicy: HoldAndDrain
      fairSharing: {weight: "0.6"}
      resourceGroups:
      - coveredResources: [cpu, memory]
        flavors:
        - name: spot
          resources:
          - {name: cpu, nominalQuota: "1500m", borrowingLimit: 2, lendingLimit: "0.5"}
          - {name: memory, nominalQuota: 12Gi}
    """)

    assert got == ClusterQueue(
        name="training",
        cohort="lab",
        resource_groups=(group(["cpu", "memory"], spot=[Quota(1500, 2000, 500), Quota(12 * 2**30)]),),
        strategy=QueueingStrategy.STRICT_FIFO,
        namespace_selector=Selector(
            (("team", "vision"),), (Requirement("tier", "In", ("a", "b")), Requirement("old", "DoesNotExist"))
        ),
        fungibility=Fungibility(
            next_when_borrowing=True, next_when_preempting=True, preference=Preference.PREEMPTION_OVER_BORROWING
        ),
        preemption=Preemption(
            within_cluster_queue=PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY,
            reclaim_within_cohort=PreemptionPolicy.ANY,
            borrow_within_cohort=PreemptionPolicy.LOWER_PRIORITY,
            priority_threshold_max=100,
        ),
        stop_policy=StopPolicy.HOLD_AND_DRAIN,
        weight=FairWeight(0.6),
        admission_checks=("prov", "budget"),
    )


@pytest.mark.parametrize(
    ("spec", "field", "want"),
    [
        pytest.param("{cohort: lab}", "cohort", "lab", id="the older name of the cohort"),
        pytest.param("{cohort: lab, cohortName: lab}", "cohort", "lab", id="both names, one meaning"),
        pytest.param("{cohortName: ''}", "cohort", None, id="an empty cohort is none"),
        pytest.param(
            "{flavorFungibility: {whenCanBorrow: Borrow, whenCanPreempt: Preempt}}",
            "fungibility",
            Fungibility(next_when_borrowing=False, next_when_preempting=False),
            id="the older words of fungibility",
        ),
        pytest.param("{flavorFungibility: {}}", "fungibility", Fungibility(), id="defaults of fungibility"),
        pytest.param("{admissionChecks: [prov]}", "admission_checks", ("prov",), id="the older list of checks"),
        pytest.param("{namespaceSelector: null}", "namespace_selector", None, id="no namespace"),
        pytest.param("{namespaceSelector: {}}", "namespace_selector", Selector(), id="all namespaces"),
        pytest.param("{fairSharing: {weight: 0}}", "weight", FairWeight(0.0), id="weight nought"),
        pytest.param("{fairSharing: {weight: 0.75}}", "weight", FairWeight(0.75), id="a weight without quotes"),
        pytest.param("{fairSharing: null, resourceGroups: null}", "resource_groups", (), id="nulls are nothing"),
        pytest.param("null", "resource_groups", (), id="no spec"),
        pytest.param(
            "{resourceGroups: [{flavors: [{name: f, resources: [{name: cpu, nominalQuota: 1}]}]}]}",
            "resource_groups",
            (group(["cpu"], f=[Quota(1000)]),),
            id="covered resources left out are those the flavors list",
        ),
        pytest.param(
            "{resourceGroups: [{coveredResources: [cpu], flavors: [{name: f, resources: "
            "[{name: cpu, nominalQuota: 9223372036854775}]}]}]}",
            "resource_groups",
            (group(["cpu"], f=[Quota(UNLIMITED)]),),
            id="so much is unlimited",
        ),
    ],
)
def test_a_field_of_a_cluster_queue(spec, field, want):
    got = queue(spec)

    assert (getattr(got, field), got.misconfigured) == (want, "")


def quotas(text, *, cohort="lab", flavor="f", covered="cpu"):
    return (
        f"{{cohortName: '{cohort}', resourceGroups: "
        f"[{{coveredResources: [{covered}], flavors: [{{name: {flavor}, resources: [{{name: cpu, {text}}}]}}]}}]}}"
    )


def groups_of(*groups):
    """Resource groups, each a resource and its flavors."""
    return {
        "resourceGroups": [
            {
                "coveredResources": [resource],
                "flavors": [{"name": name, "resources": [{"name": resource, "nominalQuota": 1}]} for name in flavors],
            }
            for resource, *flavors in groups
        ]
    }


AT = "spec.resourceGroups[0].flavors[0].resources[0]"


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        (quotas("nominalQuota: 1x"), f"{AT}.nominalQuota: '1x' is not a quantity; write for example 4, 500m or 12Gi"),
        (quotas("nominalQuota: -1"), f"{AT}.nominalQuota: -1 is negative; write 0 or more"),
        (quotas("lendingLimit: 1"), f"{AT}.nominalQuota: is missing; write 0 or more"),
        (quotas("nominalQuota: true"), f"{AT}.nominalQuota: expected a quantity such as 4, 500m or 12Gi, got `bool`"),
        (quotas("nominalQuota: 1, borrowingLimit: -1"), f"{AT}.borrowingLimit: -1 is negative; write 0 or more"),
        (
            quotas("nominalQuota: 1, borrowingLimit: 1", cohort=""),
            f"{AT}.borrowingLimit: has no meaning without a cohort; set spec.cohortName or leave it out",
        ),
        (
            quotas("nominalQuota: 1, lendingLimit: 1", cohort=""),
            f"{AT}.lendingLimit: has no meaning without a cohort; set spec.cohortName or leave it out",
        ),
        (quotas("nominalQuota: 1, lendingLimit: 1001m"), f"{AT}.lendingLimit: 1001m is above nominalQuota 1"),
        (
            quotas("nominalQuota: 1", covered="cpu, memory"),
            "spec.resourceGroups[0].flavors[0].resources: lists cpu; write what coveredResources lists",
        ),
        (quotas("nominalQuota: 1", flavor="F_1"), "spec.resourceGroups[0].flavors[0].name: 'F_1' is not a name of a"),
        ("{resourceGroups: [{coveredResources: [cpu]}]}", "spec.resourceGroups[0].flavors: has 0 flavors; write 1 to"),
        (groups_of(("cpu", "f", "f")), "spec.resourceGroups[0]: flavor f is there twice (first in group 0)"),
        (
            groups_of(("cpu", "f"), ("cpu", "g")),
            "spec.resourceGroups[1]: resource cpu is there twice (first in group 0)",
        ),
        ("{resourceGroups: many}", "spec.resourceGroups: expected `array`, got `str`"),
        ("{cohortName: Lab}", "spec.cohortName: 'Lab' is not a name of an object"),
        ("{cohortName: lab, cohort: ward}", "spec.cohort: 'ward' and spec.cohortName 'lab' differ; keep one"),
        ("{queueingStrategy: LIFO}", "spec.queueingStrategy: 'LIFO' is unknown; write StrictFIFO or BestEffortFIFO"),
        ("{stopPolicy: Wait}", "spec.stopPolicy: 'Wait' is unknown; write None or Hold or HoldAndDrain"),
        (
            "{preemption: {withinClusterQueue: Any}}",
            "spec.preemption.withinClusterQueue: 'Any' is unknown; write Never",
        ),
        ("{preemption: {reclaimWithinCohort: Always}}", "spec.preemption.reclaimWithinCohort: 'Always' is unknown"),
        (
            "{preemption: {borrowWithinCohort: {policy: LowerPriority}}}",
            "spec.preemption.borrowWithinCohort: has no meaning while reclaimWithinCohort is Never",
        ),
        (
            "{preemption: {borrowWithinCohort: {maxPriorityThreshold: 4000000000}}}",
            "spec.preemption.borrowWithinCohort.maxPriorityThreshold: does not fit into 32 bits",
        ),
        ("{flavorFungibility: {whenCanBorrow: Preempt}}", "spec.flavorFungibility.whenCanBorrow: 'Preempt' is unknown"),
        (
            "{flavorFungibility: {preference: PreemptionOverBorrowing}}",
            "spec.flavorFungibility.preference: needs whenCanBorrow and whenCanPreempt to be TryNextFlavor",
        ),
        (
            "{namespaceSelector: {matchExpressions: [{key: a, operator: Near}]}}",
            "spec.namespaceSelector.matchExpressions[0].operator: 'Near' is not In, NotIn, Exists or DoesNotExist",
        ),
        (
            "{namespaceSelector: {matchExpressions: [{key: a, operator: In}]}}",
            "spec.namespaceSelector.matchExpressions[0].values: operator In needs values",
        ),
        ("{namespaceSelector: {matchLabels: {a: 'b c'}}}", "spec.namespaceSelector.matchLabels: 'a': 'b c' is not a"),
        ("{fairSharing: {weight: -1}}", "spec.fairSharing.weight: -1 is negative; write 0 or more"),
        ("{fairSharing: {weight: 1n}}", "spec.fairSharing.weight: 1n is too small; write 0, or more than 1n"),
        (
            "{admissionChecksStrategy: {admissionChecks: [{name: c, onFlavors: [x]}]}, resourceGroups: "
            + orjson.dumps(groups_of(("cpu", "f"))["resourceGroups"]).decode()
            + "}",
            "spec.admissionChecksStrategy.admissionChecks[0].onFlavors: 'x' is no flavor of this ClusterQueue",
        ),
        ({"admissionChecks": [f"c{i}" for i in range(65)]}, "spec.admissionChecksStrategy.admissionChecks: has 65"),
        ("[]", "spec: expected `object | null`, got `array`"),
    ],
)
def test_a_wrong_cluster_queue_says_which_field_and_what_to_write(spec, want):
    item = CLUSTER_QUEUES.item(raw("training", spec))

    assert item.fact.cluster_queue.misconfigured.startswith(want)
    assert item.problem == item.fact.cluster_queue.misconfigured


@pytest.mark.parametrize(
    ("spec", "field", "want"),
    [
        pytest.param(quotas("nominalQuota: 1x"), "cohort", "lab", id="it stays in its cohort"),
        pytest.param(quotas("nominalQuota: 1x"), "resource_groups", (), id="half a quota is no quota"),
        pytest.param("{stopPolicy: Wait}", "stop_policy", StopPolicy.HOLD, id="an unknown stop policy holds"),
        pytest.param(
            "{namespaceSelector: {matchExpressions: [{key: a, operator: Near}]}}",
            "namespace_selector",
            None,
            id="an unreadable selector selects nothing",
        ),
        pytest.param(
            quotas("nominalQuota: 1")[:-1] + ", queueingStrategy: LIFO}",
            "resource_groups",
            (group(["cpu"], f=[Quota(1000)]),),
            id="quotas are kept when the mistake is elsewhere",
        ),
    ],
)
def test_what_a_wrong_cluster_queue_keeps(spec, field, want):
    got = queue(spec)

    assert got.misconfigured
    assert getattr(got, field) == want


def test_several_problems_are_told_in_one_line():
    got = queue("{queueingStrategy: LIFO, stopPolicy: Wait, cohortName: Lab, fairSharing: {weight: -1}}")

    assert got.misconfigured.count("; ") >= 2
    assert got.misconfigured.endswith("(and 1 more)")


@pytest.mark.parametrize(
    ("groups", "flavors", "want"),
    [
        pytest.param(17, 1, "has 17 groups; at most 16", id="groups"),
        pytest.param(1, 65, "has 65 flavors; write 1 to 64", id="flavors of a group"),
        pytest.param(5, 60, "has 300 flavors; at most 256", id="flavors of all groups"),
    ],
)
def test_the_limits_of_the_schema(groups, flavors, want):
    spec = groups_of(*[(f"r{g}", *[f"f{g}-{f}" for f in range(flavors)]) for g in range(groups)])

    assert want in queue(spec).misconfigured


def test_a_cluster_queue_on_its_way_out():
    item = CLUSTER_QUEUES.item(
        orjson.dumps({"metadata": {"name": "training", "deletionTimestamp": "2026-03-01T08:00:00Z"}, "spec": {}})
    )

    assert item.fact.cluster_queue.deleting
