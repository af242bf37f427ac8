"""What runs without an admission is charged where it runs, or says why it cannot be."""

import pytest

from extender.model.effects import AdoptPod, UngatePod
from extender.model.events import ClusterQueueSeen, FlavorSeen, LocalQueueSeen, NodeGone, PodSeen, WorkloadSeen
from extender.model.names import (
    PODS,
    ClusterQueueName,
    FlavorName,
    LocalQueueName,
    Namespace,
    NodeName,
    ResourceName,
    WorkloadUid,
)
from extender.model.pods import Owner
from extender.model.quota import ClusterQueue, FlavorQuotas, LocalQueue, Quota, ResourceFlavor, ResourceGroup
from extender.model.reasons import ReasonCode
from extender.pods.admission import read_admission
from extender.pods.books import Books
from tests.pods.build import A100, GPU, hospital_books, pod

OTHER = FlavorName("other")
A100_NODE, CPU_NODE = NodeName("a100-1"), NodeName("cpu-1")
QUEUE = ClusterQueueName("training-cq")


def group(*resources: ResourceName, flavors: tuple[FlavorName, ...]) -> ResourceGroup:
    quotas = tuple((resource, Quota(8)) for resource in resources)
    return ResourceGroup(resources, tuple(FlavorQuotas(flavor, quotas) for flavor in flavors))


def queue(*groups: ResourceGroup) -> list[object]:
    return [
        ClusterQueueSeen(ClusterQueue(QUEUE, resource_groups=groups)),
        LocalQueueSeen(LocalQueue(Namespace("research"), LocalQueueName("training"), QUEUE)),
    ]


@pytest.fixture
def books() -> Books:
    books = hospital_books()
    books.apply(FlavorSeen(ResourceFlavor(OTHER, (("gpu", "other"),))))
    for event in queue(group(GPU, PODS, flavors=(OTHER, A100))):
        books.apply(event)
    return books


def runner(name: str = "train-0", **changes: object):
    return pod(name, **{"gates": (), "managed": False, "node": A100_NODE, "phase": "Running", **changes})


def told(books: Books, *pods: object):
    """What the engine was told last."""
    events = [event for one in pods for event in books.apply(PodSeen(one))]
    return events[-1].workload if isinstance(events[-1], WorkloadSeen) else None


def test_it_is_charged_on_the_first_flavor_whose_labels_its_node_carries(books):
    workload = told(books, runner())

    (given,) = workload.admission.assignments
    assert given.flavors == ((GPU, A100), (PODS, A100))
    assert given.usage == ((GPU, 1), (PODS, 1))
    assert (workload.admission.cluster_queue, workload.admission.at_ms) == (QUEUE, 1_000)


def test_what_it_is_charged_is_written_on_it_and_changes_nothing(books):
    before = told(books, runner())
    (write,) = books.adoptions()
    assert isinstance(write, AdoptPod)
    assert books.adoptions() == []

    assert read_admission(write.uid, write.admission).admission == before.admission
    assert books.apply(PodSeen(runner(managed=True, adopted=True, admission=write.admission))) == []


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        pytest.param({"node": CPU_NODE}, "node cpu-1 is of none of the flavors other, nvidia-a100", id="no flavor"),
        pytest.param({"node": NodeName("new")}, "node new is not known", id="a node not seen yet"),
        pytest.param({"queue": LocalQueueName("x")}, "its queue does not exist", id="no queue"),
    ],
)
def test_what_cannot_be_charged_says_why(books, changes, cause):
    workload = told(books, runner(**changes))

    assert workload.admission is None
    assert workload.held.code == ReasonCode.UNCOUNTED
    assert cause in workload.held.sentence()
    assert books.adoptions() == []


def test_it_is_charged_as_soon_as_its_queue_is_known():
    books = hospital_books()
    assert told(books, runner()).admission is None

    events = [told for event in queue(group(GPU, flavors=(A100,))) for told in books.apply(event)]
    assert isinstance(events[-1], WorkloadSeen)
    assert events[-1].workload.admission is not None
    assert len(books.adoptions()) == 1


@pytest.mark.parametrize("kind", ["DaemonSet", "Node"])
def test_what_belongs_to_its_node_is_never_ours(books, kind):
    assert books.apply(PodSeen(runner(owner=Owner(kind, "x", "u")))) == []
    assert books.adoptions() == []


def test_our_own_namespace_is_never_touched(books):
    books.exclude(Namespace("research"))

    assert books.apply(PodSeen(runner())) == []
    assert books.adoptions() == []


def test_when_it_ends_it_uses_nothing(books):
    told(books, runner())

    (event,) = books.apply(PodSeen(runner(phase="Succeeded")))
    assert event.uid == "train-0"


def test_a_running_group_is_charged_whole_and_its_other_pods_follow(books):
    member = {"group": "sweep", "group_total": 3}
    workload = told(books, runner("a", **member), runner("b", **member), pod("c", **member))

    (given,) = workload.admission.assignments
    assert (workload.uid, given.count, dict(given.usage)[GPU]) == (WorkloadUid("group:research/sweep"), 3, 3)
    assert [type(write) for write in (*books.adoptions(), *books.finish())] == [AdoptPod, AdoptPod, UngatePod]


def test_a_write_that_failed_is_tried_again(books):
    books.apply(PodSeen(pod("late", gates=(), managed=False)))
    (write,) = books.adoptions()
    assert books.adoptions() == []

    books.adopt_again(write.uid)
    assert books.adoptions() == [write]


def test_a_node_that_is_forgotten_does_not_take_back_what_is_written(books):
    told(books, runner())
    (write,) = books.adoptions()
    books.apply(NodeGone(A100_NODE))

    assert books.apply(PodSeen(runner(managed=True, adopted=True, admission=write.admission))) == []
