"""Facts about pods become facts about workloads, and decisions about workloads become writes to pods."""

import msgspec
import pytest

from extender.model.effects import AdoptPod, Evict, EvictionReason, EvictPod, SetPodCondition, UngatePod
from extender.model.events import (
    AdmissionRefused,
    LocalQueueSeen,
    PodGone,
    PodSeen,
    PriorityClassGone,
    PriorityClassSeen,
    WorkloadGone,
    WorkloadSeen,
)
from extender.model.names import ClusterQueueName, LocalQueueName, Namespace, NodeName, PodUid, WorkloadUid
from extender.model.pods import GATE, Owner
from extender.model.quota import LocalQueue, Toleration
from extender.model.reasons import ReasonCode, reason
from extender.pods.admission import write_admission
from extender.pods.books import Books
from tests.pods.build import A100_LABELS, GPU, admission, admit, hospital_books, pod


def seen(books: Books, **changes: object):
    (event,) = books.apply(PodSeen(pod(**changes)))
    assert isinstance(event, WorkloadSeen)
    return event.workload


def admitted_text(books: Books, uid: str = "train-0") -> str:
    (write,) = books.admit(admit(uid))
    assert isinstance(write, UngatePod)
    return write.admission


def test_a_gated_pod_waits_in_the_queue_it_names():
    workload = seen(Books())

    assert workload.queue == ("research", "training")
    assert workload.pod_sets[0].requests == ((GPU, 1),)
    assert workload.admission is None
    assert workload.held is None


def test_a_managed_pod_that_names_no_queue_waits_in_the_default_one():
    assert seen(Books(), queue=LocalQueueName("")).queue == ("research", "default")


def test_a_heartbeat_tells_the_engine_nothing():
    books = Books()
    seen(books)

    assert books.apply(PodSeen(pod(resource_version="8", ready=True))) == []


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        pytest.param({"problem": "total count is not a number"}, ReasonCode.REQUEST_INVALID, id="unreadable words"),
        pytest.param({"priority_class": "nope"}, ReasonCode.REQUEST_INVALID, id="a priority class that is missing"),
        pytest.param({"gates": (GATE, "other/gate")}, ReasonCode.FOREIGN_GATE, id="a gate of somebody else"),
        pytest.param({"gates": ()}, ReasonCode.DEACTIVATED, id="our gate removed by hand"),
        pytest.param(
            {"gates": (), "admission": '{"pod":"forged"}'}, ReasonCode.DEACTIVATED, id="a forged admission, ungated"
        ),
    ],
)
def test_a_pod_is_held_with_the_reason(changes, want):
    held = seen(Books(), **changes).held

    assert held is not None
    assert held.code == want


def test_a_pod_that_was_taken_in_ungated_is_not_held():
    assert seen(Books(), gates=(), adopted=True).held is None


def test_a_priority_class_sets_the_priority_and_its_change_is_told():
    books = Books()
    seen(books, priority_class="clinical", priority=3)

    (event,) = books.apply(PriorityClassSeen("clinical", 1000))
    assert isinstance(event, WorkloadSeen)
    assert (event.workload.priority, event.workload.held) == (1000, None)

    (event,) = books.apply(PriorityClassGone("clinical"))
    assert isinstance(event, WorkloadSeen)
    assert event.workload.held is not None


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"phase": "Succeeded", "node": NodeName("a100-1")}, id="succeeded"),
        pytest.param({"phase": "Failed", "node": NodeName("a100-1")}, id="failed"),
        pytest.param({"deleting": True}, id="deleted before it got a node"),
    ],
)
def test_an_ended_pod_ends_its_workload_once(changes):
    books = Books()
    seen(books)

    assert books.apply(PodSeen(pod(**changes))) == [WorkloadGone(WorkloadUid("train-0"))]
    assert books.apply(PodGone(PodUid("train-0"))) == []


def test_a_running_pod_that_is_being_deleted_still_holds_its_quota():
    books = hospital_books()
    seen(books)
    text = admitted_text(books)

    workload = seen(books, gates=(), admission=text, node=NodeName("a100-1"), deleting=True)

    assert workload.admission == admission()
    assert workload.evicted


def test_an_admission_is_one_patch_with_the_flavors_labels_and_tolerations():
    books = hospital_books()
    seen(books, tolerations=(Toleration(key="mine"),))

    (write,) = books.admit(admit())

    assert isinstance(write, UngatePod)
    assert (write.uid, write.resource_version) == ("train-0", "7")
    assert write.node_selector == A100_LABELS
    assert write.tolerations == (Toleration(key="mine"), Toleration(key="gpu", operator="Exists"))


def test_tolerations_that_are_there_already_are_not_sent_again():
    books = hospital_books()
    seen(books, tolerations=(Toleration(key="gpu", operator="Exists"),))

    (write,) = books.admit(admit())

    assert isinstance(write, UngatePod)
    assert write.tolerations is None


def test_an_ungated_pod_gets_no_node_selector_since_the_api_would_refuse_it():
    books = hospital_books()
    seen(books, gates=(), adopted=True)

    (write,) = books.admit(admit())

    assert isinstance(write, UngatePod)
    assert write.node_selector == ()


def test_what_is_being_written_is_remembered_until_it_is_seen_or_refused():
    books = hospital_books()
    seen(books)
    (write,) = books.admit(admit())
    assert isinstance(write, UngatePod)
    assert books.assumed_admission(PodUid("train-0")) == write.admission

    assert books.refuse(write, "gone: 404") == [AdmissionRefused(WorkloadUid("train-0"), "gone: 404")]
    assert books.assumed_admission(PodUid("train-0")) is None

    text = admitted_text(books)
    seen(books, gates=(), admission=text)
    assert books.assumed_admission(PodUid("train-0")) is None


def test_after_a_conflict_the_charge_is_kept_until_the_change_is_seen():
    books = hospital_books()
    seen(books)
    (write,) = books.admit(admit())
    assert isinstance(write, UngatePod)

    assert books.refuse(write, "conflict: 409") == []

    refused, again = books.apply(PodSeen(pod(resource_version="8", priority=5)))
    assert refused == AdmissionRefused(WorkloadUid("train-0"), "conflict: 409")
    assert isinstance(again, WorkloadSeen)


def test_a_conflict_with_a_change_that_was_seen_meanwhile_gives_back_at_once():
    books = hospital_books()
    seen(books)
    (write,) = books.admit(admit())
    assert isinstance(write, UngatePod)
    books.apply(PodSeen(pod(resource_version="8")))

    assert books.refuse(write, "conflict: 409") == [AdmissionRefused(WorkloadUid("train-0"), "conflict: 409")]


def test_an_eviction_is_written_once_the_pod_is_not_leaving_already():
    books = Books()
    seen(books, gates=(), node=NodeName("a100-1"))
    evict = Evict(WorkloadUid("train-0"), WorkloadUid("api-0"), EvictionReason.IN_COHORT_FAIR_SHARING, "because")

    (write,) = books.evict(evict)
    assert isinstance(write, EvictPod)
    assert write.uid == "train-0"

    books.apply(PodSeen(pod(node=NodeName("a100-1"), deleting=True)))
    assert books.evict(evict) == []


@pytest.mark.parametrize(
    ("changes", "adopted"),
    [
        pytest.param({}, True, id="names a queue"),
        pytest.param({"queue": ""}, False, id="names none"),
        pytest.param({"owner": Owner("DaemonSet", "cni", "u")}, False, id="of a DaemonSet"),
        pytest.param({"phase": "Failed"}, False, id="ended"),
        pytest.param({"namespace": Namespace("kube-system")}, False, id="in a namespace that is never touched"),
    ],
)
def test_a_pod_that_arrived_without_us_is_taken_in_once(changes, adopted):
    books = Books()
    stray = pod(gates=(), managed=False, **changes)
    assert books.apply(PodSeen(stray)) == []

    want = [AdoptPod(stray.uid, stray.namespace, stray.name, "7")] if adopted else []
    assert books.adoptions() == want
    assert books.adoptions() == []


@pytest.mark.parametrize(
    "then",
    [
        pytest.param(PodGone(PodUid("train-0")), id="gone"),
        pytest.param(PodSeen(pod(gates=(), adopted=True)), id="labelled meanwhile"),
    ],
)
def test_a_pod_that_is_not_stray_any_more_is_not_taken_in(then):
    books = Books()
    books.apply(PodSeen(pod(gates=(), managed=False)))
    books.apply(then)

    assert books.adoptions() == []


def test_a_pod_whose_label_was_taken_away_is_taken_in_again_and_holds_nothing():
    books = Books()
    seen(books)

    assert books.apply(PodSeen(pod(gates=(), managed=False))) == [WorkloadGone(WorkloadUid("train-0"))]
    assert len(books.adoptions()) == 1


def test_a_condition_says_the_reason_or_that_it_is_admitted():
    books = Books()
    seen(books)
    why = reason(ReasonCode.QUEUE_NOT_FOUND, queue="training", namespace="research")

    (write,) = books.condition(WorkloadUid("train-0"), why)
    assert isinstance(write, SetPodCondition)
    assert (write.status, write.reason) == (False, "QueueNotFound")
    assert write.message == "no LocalQueue training in namespace research"

    (write,) = books.condition(WorkloadUid("train-0"), None)
    assert isinstance(write, SetPodCondition)
    assert (write.status, write.reason) == (True, "Admitted")


def test_facts_about_quota_pass_through():
    books = Books()
    event = LocalQueueSeen(LocalQueue(Namespace("a"), LocalQueueName("b"), ClusterQueueName("c")))

    assert books.apply(event) == [event]


def test_records_are_frozen():
    with pytest.raises(AttributeError):
        pod().name = "other"
    assert msgspec.structs.replace(pod(), name="other").name == "other"


def test_a_new_term_looks_at_what_pods_say_by_and_by():
    books = hospital_books()
    for name in ("a", "b", "c"):
        text = write_admission(PodUid(name), "main", admission())
        books.apply(PodSeen(pod(name, gates=(), admission=text, admitted_reason="QuotaUsed")))
    books.stale.clear()
    books.say_again()
    looked = []
    for _ in range(3):
        books.say_more(2)
        looked.append(sorted(books.stale))

    assert looked == [["a", "b"], ["a", "b", "c"], ["a", "b", "c"]]
