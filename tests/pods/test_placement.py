"""What kube-scheduler is answered: the flavor's nodes for the admitted, none for others, everything for strangers."""

import pytest

from extender.model.errors import NotYetSeen
from extender.model.events import NodeGone, NodeSeen, PodGone, PodSeen
from extender.model.names import Namespace, NodeName, PodUid
from extender.model.pods import Node
from extender.model.questions import PlacementQuestion, PodInQuestion, PreemptionQuestion
from extender.model.verdicts import NodeScore, NodeVictims
from extender.pods.admission import write_admission
from extender.pods.placement import BOUND_ELSEWHERE, NOT_ADMITTED, WRONG_FLAVOR, Placement
from tests.pods.build import A100_LABELS, GPU, admission, admit, hospital_books, pod

NODES = ["a100-2", "cpu-1", "a100-1"]
TEXT = write_admission(PodUid("train-0"), "main", admission())


class Everybody:
    """Protects the victims named ``safe-…``."""

    def may_preempt(self, preemptor, victim):
        return not victim.startswith("safe")


def question(name="train-0", **changes):
    return PodInQuestion(PodUid(name), Namespace("research"), name, **{"queue": "training", **changes})


@pytest.fixture
def books():
    return hospital_books()


@pytest.fixture
def placement(books):
    return Placement(books, Everybody())


def filtered(placement, asked, nodes=NODES):
    return placement.filter(PlacementQuestion(asked, list(nodes)))


def test_a_stranger_may_use_every_node(placement):
    assert filtered(placement, question(queue="")).nodes == NODES


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param({}, id="gated"),
        pytest.param({"gates": ()}, id="gate removed by hand"),
        pytest.param({"gates": (), "admission": "{}"}, id="a broken annotation"),
        pytest.param(
            {"gates": (), "admission": write_admission(PodUid("other"), "main", admission())},
            id="the annotation of another pod",
        ),
    ],
)
def test_a_pod_without_a_valid_admission_may_use_no_node(books, placement, shown):
    books.apply(PodSeen(pod(**shown)))

    verdict = filtered(placement, question(admission=shown.get("admission")))

    assert verdict.nodes == []
    assert verdict.unresolvable == dict.fromkeys(NODES, NOT_ADMITTED)


def test_a_forged_annotation_of_a_pod_that_we_do_not_know_is_refused(placement):
    assert filtered(placement, question(admission='{"pod":"guess"}')).nodes == []


def test_an_admitted_pod_may_use_its_flavors_nodes_in_the_order_asked(books, placement):
    books.apply(PodSeen(pod(gates=(), admission=TEXT)))

    verdict = filtered(placement, question(admission=TEXT))

    assert verdict.nodes == ["a100-2", "a100-1"]
    assert verdict.unresolvable == {"cpu-1": WRONG_FLAVOR}
    assert verdict.failed == {}


def test_an_admission_being_written_counts_before_the_watch_shows_it(books, placement):
    books.apply(PodSeen(pod()))
    (write,) = books.admit(admit())

    assert filtered(placement, question(admission=write.admission)).nodes == ["a100-2", "a100-1"]


def test_a_lagging_watch_asks_for_a_retry_instead_of_refusing(books, placement):
    books.apply(PodSeen(pod()))
    with pytest.raises(NotYetSeen):
        filtered(placement, question(admission=TEXT))


def test_a_pod_that_the_watch_has_not_shown_at_all_asks_for_a_retry(placement):
    with pytest.raises(NotYetSeen):
        filtered(placement, question(admission=TEXT))


def test_a_bound_pods_stale_retry_is_answered_with_its_node(books, placement):
    books.apply(PodSeen(pod(gates=(), admission=TEXT, node=NodeName("a100-1"))))

    verdict = filtered(placement, question(admission=TEXT))

    assert verdict.nodes == ["a100-1"]
    assert verdict.unresolvable == {"a100-2": BOUND_ELSEWHERE, "cpu-1": BOUND_ELSEWHERE}


@pytest.mark.parametrize(
    ("selector", "want"),
    [
        pytest.param(A100_LABELS, ["new", "a100-1"], id="left to the scheduler if the pod selects the flavor itself"),
        pytest.param((), ["a100-1"], id="refused otherwise"),
    ],
)
def test_a_node_that_we_do_not_know_yet(books, placement, selector, want):
    books.apply(PodSeen(pod(gates=(), admission=TEXT)))

    verdict = filtered(placement, question(admission=TEXT, node_selector=selector), ["new", "cpu-1", "a100-1"])

    assert verdict.nodes == want


def test_a_change_of_nodes_is_seen_by_the_next_question(books, placement):
    books.apply(PodSeen(pod(gates=(), admission=TEXT)))
    filtered(placement, question(admission=TEXT))

    books.apply(NodeSeen(Node(NodeName("cpu-1"), A100_LABELS)))
    books.apply(NodeGone(NodeName("a100-1")))

    assert filtered(placement, question(admission=TEXT)).nodes == ["a100-2", "cpu-1"]


def test_fuller_nodes_score_higher_so_that_empty_ones_stay_whole(books, placement):
    books.apply(PodSeen(pod("other", gates=(), node=NodeName("a100-1"), requests=((GPU, 3),))))
    books.apply(PodSeen(pod(gates=(), admission=TEXT)))

    scores = placement.prioritize(PlacementQuestion(question(admission=TEXT), NODES))

    assert scores == [NodeScore("a100-2", 1), NodeScore("cpu-1", 0), NodeScore("a100-1", 5)]


def test_what_a_node_has_and_what_is_used_on_it_are_followed(books, placement):
    books.apply(PodSeen(pod("other", gates=(), node=NodeName("a100-1"), requests=((GPU, 3),))))
    books.apply(PodSeen(pod(gates=(), admission=TEXT)))
    books.apply(PodGone(PodUid("other")))
    books.apply(NodeSeen(Node(NodeName("a100-1"), A100_LABELS, allocatable=((GPU, 2),))))
    books.apply(NodeSeen(Node(NodeName("a100-2"), A100_LABELS)))

    scores = placement.prioritize(PlacementQuestion(question(admission=TEXT), NODES))

    assert scores == [NodeScore("a100-2", 0), NodeScore("cpu-1", 0), NodeScore("a100-1", 5)]


def test_a_node_with_a_protected_victim_is_left_out(books, placement):
    books.apply(PodSeen(pod(gates=(), admission=TEXT)))
    for name in ("safe-0", "train-1"):
        books.apply(PodSeen(pod(name, gates=(), node=NodeName("a100-1"))))
    candidates = {
        "a100-1": NodeVictims(["train-1", "safe-0"], 0),
        "a100-2": NodeVictims(["train-1", "foreign"], 1),
        "empty": NodeVictims([], 0),
    }

    kept = placement.preempt(PreemptionQuestion(question(admission=TEXT), candidates))

    assert kept == {"a100-2": NodeVictims(["train-1", "foreign"], 1)}


def test_a_pod_that_is_not_admitted_pushes_nobody_away(books, placement):
    books.apply(PodSeen(pod()))

    assert placement.preempt(PreemptionQuestion(question(), {"a100-1": NodeVictims(["x"], 0)})) == {}


def test_a_stranger_is_the_schedulers_business(placement):
    candidates = {"a100-1": NodeVictims(["x"], 0)}

    assert placement.preempt(PreemptionQuestion(question(queue=""), candidates)) == candidates


def test_asking_leaves_no_trace(books, placement):
    books.apply(PodSeen(pod(gates=(), admission=TEXT)))
    first = filtered(placement, question(admission=TEXT))
    placement.preempt(PreemptionQuestion(question(admission=TEXT), {"a100-1": NodeVictims(["x"], 0)}))

    assert filtered(placement, question(admission=TEXT)) == first
