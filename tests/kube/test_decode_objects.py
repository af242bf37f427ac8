"""Cohorts, flavors, LocalQueues, priority classes and namespaces, read as written or refused with the field."""

import msgspec
import orjson
import pytest

from extender.kube.decode_quota import (
    CLUSTER_QUEUES,
    COHORTS,
    FLAVORS,
    LOCAL_QUEUES,
    NAMESPACES,
    PRIORITY_CLASSES,
)
from extender.kube.reflector import Held
from extender.model.events import (
    ClusterQueueGone,
    CohortGone,
    FlavorGone,
    FlavorSeen,
    LocalQueueGone,
    LocalQueueSeen,
    NamespaceGone,
    NamespaceSeen,
    PriorityClassGone,
    PriorityClassSeen,
)
from extender.model.names import LocalQueueKey
from extender.model.quota import (
    Cohort,
    FairWeight,
    LocalQueue,
    Quota,
    ResourceFlavor,
    StopPolicy,
    Taint,
    Toleration,
)
from tests.kube.test_decode_quota import GPU, cohort, group, quotas, raw


def test_the_articles_cohorts_read_as_written():
    top = cohort("""
      resourceGroups:
      - flavors:
        - {name: nvidia-a100, resources: [{name: nvidia.com/gpu, nominalQuota: 100}]}
    """)
    part = cohort("{parent: medical-center-wide-gpus, fairSharing: {weight: '0.6'}}")

    assert top == Cohort("lab", resource_groups=(group([GPU], **{"nvidia-a100": [Quota(100)]}),))
    assert part == Cohort("lab", parent="medical-center-wide-gpus", weight=FairWeight(0.6))


def test_a_cohort_may_lend_more_than_its_own_quota():
    assert cohort(quotas("nominalQuota: 1, lendingLimit: 5").replace("cohortName", "parentName")) == Cohort(
        "lab", parent="lab", resource_groups=(group(["cpu"], f=[Quota(1000, None, 5000)]),)
    )


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param(
            quotas("nominalQuota: 1x").replace("cohortName", "parentName"),
            Cohort("lab", parent="lab"),
            id="a bad quota is none, and it stays under its parent",
        ),
        pytest.param("{fairSharing: {weight: heavy}}", Cohort("lab"), id="a bad weight is 1"),
        pytest.param(
            quotas("nominalQuota: 1, lendingLimit: 1", cohort="").replace("cohortName", "parentName"),
            Cohort("lab"),
            id="limits of a root are wrong",
        ),
        pytest.param({"parentName": 5}, Cohort("lab"), id="a parent that is no text"),
    ],
)
def test_a_wrong_cohort_goes_on_without_what_is_wrong_and_says_so(spec, want):
    got = cohort(spec)

    assert got.misconfigured.startswith("spec.")
    assert msgspec.structs.replace(got, misconfigured="") == want


def test_a_flavor():
    item = FLAVORS.item(
        raw(
            "a100",
            """
            nodeLabels: {zone: z1, gpu: a100}
            nodeTaints: [{key: gpu, value: a100, effect: NoSchedule}]
            tolerations: [{key: gpu, operator: Exists, effect: NoExecute, tolerationSeconds: 60}]
            topologyName: racks
            """,
        )
    )

    assert item.fact == FlavorSeen(
        ResourceFlavor(
            "a100",
            (("gpu", "a100"), ("zone", "z1")),
            (Taint("gpu", "a100", "NoSchedule"),),
            (Toleration("gpu", "Exists", "", "NoExecute", 60),),
            "racks",
        )
    )


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ("{nodeLabels: {a b: c}}", "spec.nodeLabels: 'a b': 'c' is not a label"),
        ("{nodeTaints: [{key: gpu, effect: Never}]}", "spec.nodeTaints[0].effect: 'Never' is unknown"),
        ("{nodeTaints: [{effect: NoSchedule}]}", "spec.nodeTaints[0].key: '' is not a label key"),
        (
            "{nodeTaints: [{key: g, effect: NoSchedule}, {key: g, value: v, effect: NoSchedule}]}",
            "spec.nodeTaints[1]: g:NoSchedule is there twice",
        ),
        ("{tolerations: [{value: a}]}", "spec.tolerations[0].operator: an empty key needs operator Exists"),
        (
            "{tolerations: [{key: g, operator: Exists, value: a}]}",
            "spec.tolerations[0].value: operator Exists takes no",
        ),
        ("{tolerations: [{key: g, tolerationSeconds: 1}]}", "spec.tolerations[0].tolerationSeconds: only with effect"),
        ("{topologyName: racks}", "spec.topologyName: needs at least one label in spec.nodeLabels"),
        ({"nodeLabels": {f"k{i}": "v" for i in range(9)}}, "spec.nodeLabels: has 9 labels; at most 8"),
        ({"nodeTaints": [{"key": f"k{i}", "effect": "NoExecute"} for i in range(9)]}, "spec.nodeTaints: has 9 taints"),
        ({"tolerations": [{"key": "k"}] * 9}, "spec.tolerations: has 9 tolerations; at most 8"),
        ("{nodeTaints: [{key: g, value: a b, effect: NoExecute}]}", "spec.nodeTaints[0].value: 'a b' is not a label"),
        (
            "{tolerations: [{key: g, operator: Near}]}",
            "spec.tolerations[0].operator: 'Near' is unknown; write Equal or",
        ),
        ("{tolerations: [{key: a b}]}", "spec.tolerations[0].key: 'a b' is not a label key"),
        ("{tolerations: [{key: g, value: a b}]}", "spec.tolerations[0].value: 'a b' is not a label value"),
        ("{tolerations: [{key: g, effect: Never}]}", "spec.tolerations[0].effect: 'Never' is unknown"),
        ({"nodeLabels": ["gpu"]}, "spec.nodeLabels: expected `object`, got `array`"),
    ],
)
def test_a_wrong_flavor_counts_as_absent_and_says_why(spec, want):
    item = FLAVORS.item(raw("a100", spec))

    assert item.fact is None
    assert item.problem.startswith(want)


@pytest.mark.parametrize(
    ("spec", "want", "problem"),
    [
        pytest.param("{clusterQueue: training}", ("training", StopPolicy.NONE), "", id="plain"),
        pytest.param("{clusterQueue: training, stopPolicy: Hold}", ("training", StopPolicy.HOLD), "", id="held"),
        pytest.param("{}", ("", StopPolicy.NONE), "", id="without a cluster queue"),
        pytest.param(
            "{clusterQueue: t, stopPolicy: Halt}",
            ("t", StopPolicy.HOLD),
            "spec.stopPolicy: 'Halt' is unknown; write None or Hold or HoldAndDrain",
            id="an unknown stop policy holds",
        ),
    ],
)
def test_a_local_queue(spec, want, problem):
    item = LOCAL_QUEUES.item(raw("team", spec, namespace="research"))

    assert item.fact == LocalQueueSeen(LocalQueue("research", "team", *want))
    assert item.problem == problem


@pytest.mark.parametrize(
    ("value", "want", "problem"),
    [
        (1000, PriorityClassSeen("high", 1000), ""),
        (-5, PriorityClassSeen("high", -5), ""),
        ("9", None, "value: is not an integer"),
        (None, None, "value: is not an integer"),
        (2**31, None, "value: does not fit into 32 bits"),
    ],
)
def test_a_priority_class(value, want, problem):
    item = PRIORITY_CLASSES.item(raw("high", None, value=value))

    assert (item.fact, item.problem) == (want, problem)


def test_a_namespace():
    item = NAMESPACES.item(orjson.dumps({"metadata": {"name": "research", "labels": {"team": "b", "a": "1"}}}))

    assert item.fact == NamespaceSeen("research", (("a", "1"), ("team", "b")))


@pytest.mark.parametrize(
    ("codec", "key", "want"),
    [
        (FLAVORS, "a100", FlavorGone("a100")),
        (COHORTS, "lab", CohortGone("lab")),
        (CLUSTER_QUEUES, "training", ClusterQueueGone("training")),
        (LOCAL_QUEUES, "research/team", LocalQueueGone(LocalQueueKey("research", "team"))),
        (PRIORITY_CLASSES, "high", PriorityClassGone("high")),
        (NAMESPACES, "research", NamespaceGone("research")),
    ],
)
def test_the_end_of_an_object(codec, key, want):
    assert codec.gone(Held(key, "uid", "1", None)) == want
