"""Which flavor serves a workload: the worked examples of the flavor specification, section 8, and its filters."""

import pytest

from extender.engine.matching import holds, mismatch, selects
from extender.model.effects import Admit
from extender.model.events import FlavorSeen, WorkloadSeen
from extender.model.names import FlavorName, LocalQueueKey, LocalQueueName, ResourceName, WorkloadUid
from extender.model.quota import Requirement, ResourceFlavor, Selector, Taint, Toleration
from extender.model.workload import PodSet, Workload
from tests.engine.drawing import CLASSICAL, REFERENCE, TEAM, Lab

TWO = """
K cohort
  q a/gpu=4 b/gpu=4 within=lower {words}
  other a/gpu=3
"""


def two(words: str = "") -> Lab:
    """Flavor a is full of lower priorities but 3 could be borrowed; flavor b is free."""
    lab = Lab(TWO.format(words=words))
    lab.runs("old", "q", 4, flavor="a")
    lab.waits("new", "q", 2, priority=1)
    return lab


@pytest.mark.parametrize(
    ("words", "want"),
    [
        pytest.param("", "a", id="the first flavor that fits is taken, borrowing or not"),
        pytest.param("try_next_borrowing", "b", id="a queue may ask for the next flavor rather than borrow"),
    ],
)
def test_default_fungibility(words, want):
    lab = two(words)

    assert lab.admitted() == ["new"]
    assert lab.flavors("new") == {"gpu": want}


PREFERENCE = """
K cohort
  q a/gpu=4 b/gpu=0 within=lower try_next_borrowing {words}
  other b/gpu=3
"""


@pytest.mark.parametrize(
    ("words", "want"),
    [
        pytest.param("", "b", id="to borrow is better than to preempt"),
        pytest.param("lower_level_first", "a", id="unless the queue prefers to preempt"),
    ],
)
def test_preference(words, want):
    lab = Lab(PREFERENCE.format(words=words))
    lab.runs("old", "q", 4, flavor="a")
    lab.waits("new", "q", 2, priority=1)
    lab.decide()
    lab.gone("old")
    lab.decide()

    assert lab.flavors("new") == {"gpu": want}


def test_a_flavor_serves_all_resources_of_its_group_or_none():
    lab = Lab(
        """
        K cohort
          q a/cpu=9 a/memory=4 b/cpu=9 b/memory=1 reclaim=any
          other a/memory=0
        """
    )
    lab.runs("borrower", "other", {"memory": 2}, flavor="a")
    lab.waits("new", "q", {"cpu": 2, "memory": 3})

    assert lab.victims() == {"borrower": "InCohortReclamation"}

    lab.gone("borrower")
    lab.decide()

    assert lab.flavors("new") == {"cpu": "a", "memory": "a"}


def test_resource_groups_are_independent():
    lab = Lab("q x/cpu=0 y/cpu=4 z/gpu=2")
    lab.waits("new", "q", {"cpu": 2, "gpu": 1})
    lab.decide()

    assert lab.flavors("new") == {"cpu": "y", "gpu": "z"}


def test_pod_sets_may_end_on_different_flavors():
    lab = Lab("q a/cpu=8 b/cpu=12")
    cpu = ((ResourceName("cpu"), 1),)
    pod_sets = (PodSet("driver", 1, cpu), PodSet("workers", 10, cpu))
    made = Workload(WorkloadUid("job"), "job", LocalQueueKey(TEAM, LocalQueueName("q")), 0, pod_sets)
    lab.records["job"] = made
    lab.apply(WorkloadSeen(made))
    lab.decide()
    given = lab.engine.admission_of(made.uid)

    assert given is not None
    assert [part.flavors for part in given.assignments] == [
        ((ResourceName("cpu"), FlavorName("a")),),
        ((ResourceName("cpu"), FlavorName("b")),),
    ]


def test_pod_sets_of_one_workload_count_together():
    lab = Lab("q a/cpu=4")
    cpu = ((ResourceName("cpu"), 3),)
    pod_sets = (PodSet("one", 1, cpu), PodSet("two", 1, cpu))
    lab.apply(WorkloadSeen(Workload(WorkloadUid("job"), "job", LocalQueueKey(TEAM, LocalQueueName("q")), 0, pod_sets)))

    assert lab.admitted() == []
    assert lab.code("job") == "ExceedsMaxQuota"


def test_a_workload_without_pod_sets_never_fits():
    lab = Lab("q 4")
    lab.apply(WorkloadSeen(Workload(WorkloadUid("none"), "none", LocalQueueKey(TEAM, LocalQueueName("q")), 0, ())))

    assert lab.admitted() == []


def test_pods_are_counted_where_a_group_covers_them():
    lab = Lab("q f/gpu=9 f/pods=3")
    lab.waits("four", "q", 1, count=4)
    lab.waits("three", "q", 1, count=3)

    assert lab.admitted() == ["three"]
    assert lab.engine.admission_of(WorkloadUid("three")).assignments[0].usage == (("gpu", 3), ("pods", 3))


def test_a_request_for_nothing_of_what_no_group_covers_is_passed_over():
    lab = Lab("q 4")
    lab.waits("some", "q", {"gpu": 1, "tpu": 1})
    lab.waits("none", "q", {"gpu": 1, "tpu": 0})

    assert lab.admitted() == ["none"]
    assert lab.why("some") == "ClusterQueue q has no quota for tpu (covers gpu)"


@pytest.mark.parametrize(
    ("count_min", "want"),
    [
        pytest.param(4, 6, id="as many pods as fit"),
        pytest.param(7, None, id="too few to start"),
        pytest.param(None, None, id="all or nothing"),
    ],
)
def test_partial_admission(count_min, want):
    lab = Lab("q 6")
    lab.waits("job", "q", 1, count=10, count_min=count_min)
    lab.decide()
    given = lab.engine.admission_of(WorkloadUid("job"))

    assert (None if given is None else given.assignments[0].count) == want


def test_partial_admission_preempts_before_it_shrinks_further():
    lab = Lab("q 6 within=lower")
    lab.runs("low", "q", 2)
    lab.waits("job", "q", 1, count=10, count_min=2, priority=1)

    assert lab.victims() == {"low": "InClusterQueue"}

    lab.gone("low")
    lab.decide()

    assert lab.engine.admission_of(WorkloadUid("job")).assignments[0].count == 6


def test_a_scan_that_was_skipped_goes_on_at_the_next_flavor():
    lab = Lab(
        """
        K cohort
          p a/gpu=0
          q a/gpu=4 b/gpu=2
        """,
        REFERENCE,
    )
    lab.runs("two", "p", 2, flavor="a")
    lab.waits("first", "p", 2, priority=9)
    lab.waits("second", "q", 2, priority=0)
    lab.waits("third", "q", 2, priority=0)
    lab.decide()

    assert lab.flavors("second") == {"gpu": "a"}
    assert lab.flavors("third") == {"gpu": "b"}


def test_a_fit_with_a_missing_resource_is_no_fit_by_default():
    drawing = """
    K f/memory=4
      q f/cpu=2 f/memory=0 within=lower lower_level_first try_next_borrowing
    """
    for policy, want in ((CLASSICAL, {"low": "InClusterQueue"}), (REFERENCE, {})):
        lab = Lab(drawing, policy)
        lab.runs("low", "q", {"cpu": 2})
        lab.waits("new", "q", {"cpu": 2, "memory": 1}, priority=1)

        assert lab.victims() == want


TAINT = Taint("gpu", "yes", "NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "want"),
    [
        pytest.param(None, False, id="none"),
        pytest.param(Toleration("gpu", "Equal", "yes"), True, id="equal value, any effect"),
        pytest.param(Toleration("gpu", "Equal", "no"), False, id="another value"),
        pytest.param(Toleration("gpu", "Exists"), True, id="exists"),
        pytest.param(Toleration("", "Exists"), True, id="everything"),
        pytest.param(Toleration("cpu", "Exists"), False, id="another key"),
        pytest.param(Toleration("gpu", "Exists", effect="NoExecute"), False, id="another effect"),
        pytest.param(Toleration("gpu", "Gt", "5"), False, id="numbers only compare with numbers"),
    ],
)
def test_taints_must_be_tolerated(toleration, want):
    pod_set = PodSet("main", 1, (), tolerations=() if toleration is None else (toleration,))

    assert (mismatch(pod_set, ResourceFlavor(FlavorName("f"), node_taints=(TAINT,))) == "") is want


@pytest.mark.parametrize(
    ("operator", "bound", "value", "want"),
    [
        ("Gt", "5", "6", True),
        ("Gt", "5", "5", False),
        ("Lt", "5", "4", True),
        ("Lt", "5", "-4", True),
        ("Lt", "x", "4", False),
        ("Lt", "5", "", False),
    ],
)
def test_tolerations_compare_integers(operator, bound, value, want):
    pod_set = PodSet("main", 1, (), tolerations=(Toleration("gen", operator, bound),))
    flavor = ResourceFlavor(FlavorName("f"), node_taints=(Taint("gen", value, "NoExecute"),))

    assert (mismatch(pod_set, flavor) == "") is want


def test_a_flavor_may_tolerate_its_own_taint_and_a_preference_binds_nobody():
    pod_set = PodSet("main", 1, ())
    own = ResourceFlavor(FlavorName("f"), node_taints=(TAINT,), tolerations=(Toleration("gpu", "Exists"),))
    soft = ResourceFlavor(FlavorName("f"), node_taints=(Taint("gpu", "", "PreferNoSchedule"),))

    assert (mismatch(pod_set, own), mismatch(pod_set, soft)) == ("", "")


def test_an_untolerated_taint_is_named():
    pod_set = PodSet("main", 1, ())
    bare = ResourceFlavor(FlavorName("f"), node_taints=(Taint("gpu"),))

    assert mismatch(pod_set, bare) == "its taint gpu:NoSchedule is not tolerated"
    assert mismatch(pod_set, ResourceFlavor(FlavorName("f"), node_taints=(TAINT,))) == (
        "its taint gpu=yes:NoSchedule is not tolerated"
    )


def term(key: str, operator: str, *values: str) -> tuple[Requirement, ...]:
    return (Requirement(key, operator, values),)


@pytest.mark.parametrize(
    ("selector", "affinity", "want"),
    [
        pytest.param({}, (), True, id="nothing asked"),
        pytest.param({"gpu": "a100"}, (), True, id="the same label"),
        pytest.param({"gpu": "h100"}, (), False, id="another value"),
        pytest.param({"zone": "b"}, (), True, id="a label of which the flavor says nothing"),
        pytest.param({}, (term("gpu", "In", "a100"),), True, id="a term that holds"),
        pytest.param({}, (term("gpu", "In", "h100"),), False, id="a term that does not"),
        pytest.param({}, (term("gpu", "In", "h100"), term("gpu", "Exists")), True, id="any term will do"),
        pytest.param({}, (term("gpu", "In", "h100"), term("zone", "In", "b")), True, id="an emptied term holds"),
    ],
)
def test_selectors_and_affinity_count_for_the_keys_of_the_flavor(selector, affinity, want):
    pod_set = PodSet("main", 1, (), node_selector=tuple(selector.items()), affinity=affinity)

    assert (mismatch(pod_set, ResourceFlavor(FlavorName("f"), node_labels=(("gpu", "a100"),))) == "") is want


@pytest.mark.parametrize(
    ("operator", "values", "labels", "want"),
    [
        ("In", ("1", "2"), {"k": "2"}, True),
        ("In", ("1",), {}, False),
        ("NotIn", ("1",), {}, True),
        ("NotIn", ("1",), {"k": "1"}, False),
        ("Exists", (), {"k": ""}, True),
        ("Exists", (), {}, False),
        ("DoesNotExist", (), {}, True),
        ("DoesNotExist", (), {"k": "1"}, False),
        ("Gt", ("4",), {"k": "5"}, True),
        ("Gt", ("4",), {"k": "4"}, False),
        ("Lt", ("4",), {"k": "3"}, True),
        ("Lt", ("4", "5"), {"k": "3"}, False),
        ("Lt", ("4",), {}, False),
        ("Lt", ("four",), {"k": "3"}, False),
        ("Near", ("4",), {"k": "4"}, False),
    ],
)
def test_match_expressions(operator, values, labels, want):
    assert holds(Requirement("k", operator, values), labels) is want


def test_selectors_of_namespaces():
    asked = Selector(labels=(("team", "vision"),), requirements=(Requirement("prod", "DoesNotExist"),))

    assert not selects(None, {})
    assert selects(Selector(), {})
    assert selects(asked, {"team": "vision"})
    assert not selects(asked, {"team": "speech"})
    assert not selects(asked, {"team": "vision", "prod": "yes"})


def test_a_flavor_that_changes_its_labels_is_looked_at_again():
    lab = Lab("q 4")
    lab.apply(FlavorSeen(ResourceFlavor(FlavorName("f"), node_labels=(("color", "red"),))))
    lab.waits("blue", "q", node_selector=(("color", "blue"),))

    assert lab.decide() == ()
    assert (
        lab.why("blue") == "none of the flavors f fits; nearest is f: the selector asks color=blue, the flavor has red"
    )

    lab.apply(FlavorSeen(ResourceFlavor(FlavorName("f"), node_labels=(("color", "blue"),))))

    assert [type(effect) for effect in lab.decide()] == [Admit]
