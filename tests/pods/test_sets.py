"""StatefulSets: all or nothing, also if the pods come one after the other, and nothing that runs goes for growth."""

import pytest

from extender.model.effects import Admit, AdoptPod, Evict, EvictionReason, UngatePod
from extender.model.events import EngineEvent, PodGone, PodSeen, StatefulSetGone, StatefulSetSeen, WorkloadGone
from extender.model.names import LocalQueueName, NodeName, PodUid, WorkloadUid
from extender.model.pods import Owner, Pod
from extender.model.reasons import ReasonCode
from extender.model.workload import Admission, PodSetAssignment
from extender.pods.admission import read_admission
from extender.pods.books import Books
from tests.pods.build import A100, GPU, admission, hospital_books, pod

UID = "set-uid"
SET = WorkloadUid(f"group:research/statefulset/{UID}")
OWNER = Owner("StatefulSet", "db", UID)


class Desk:
    """A StatefulSet, its pods, and what the engine would know of them."""

    def __init__(self, replicas: int = 3) -> None:
        self.books: Books = hospital_books()
        self.known: dict[str, int] = {}
        self.pods: dict[str, Pod] = {}
        self.scale(replicas)

    def take(self, *events: EngineEvent) -> None:
        for event in events:
            if isinstance(event, WorkloadGone):
                self.known.pop(event.uid, None)
            else:
                self.known[event.workload.uid] = event.workload

    def scale(self, replicas: int) -> None:
        self.take(*self.books.apply(StatefulSetSeen(UID, "db", True, replicas, created_ms=500)))

    def see(self, number: int, **changes: object) -> None:
        name = f"db-{number}"
        fields = {"owner": OWNER, "of_set": True, "created_ms": 1_000 + number, **changes}
        self.pods[name] = pod(name, **fields)
        self.take(*self.books.apply(PodSeen(self.pods[name])))

    def gone(self, number: int) -> None:
        self.take(*self.books.apply(PodGone(PodUid(f"db-{number}"))))

    def admit(self) -> None:
        """The engine admits the set."""
        sets = tuple(
            PodSetAssignment(
                one.name, ((GPU, A100),), tuple((key, n * one.count) for key, n in one.requests), one.count
            )
            for one in self.known[SET].pod_sets
        )
        given = Admission(admission().cluster_queue, sets, 5_000)
        self.run(self.books.admit(Admit(SET, given)))

    def admit_alone(self, number: int) -> None:
        self.run(self.books.admit(Admit(WorkloadUid(f"db-{number}"), admission())))

    def run(self, writes) -> None:
        """Those pods get their admission and a node."""
        for write in writes:
            assert isinstance(write, UngatePod)
            self.start(write.name, write.admission)

    def start(self, name: str, text: str) -> None:
        number = int(name.removeprefix("db-"))
        known = self.pods[name]
        fields = {"uid": known.uid, "requests": known.requests, "queue": known.queue}
        self.see(number, gates=(), admission=text, node=NodeName("a100-1"), **fields)

    def finish(self) -> list[AdoptPod]:
        """What is written without a decision: ungated pods run, claims that are lowered are the answer."""
        writes = self.books.finish()
        self.run([write for write in writes if isinstance(write, UngatePod)])
        return [write for write in writes if isinstance(write, AdoptPod)]

    def lower(self, writes: list[AdoptPod]) -> None:
        for write in writes:
            assert write.again
            self.start(write.name, write.admission)

    @property
    def held(self) -> int:
        """How many GPUs the set holds."""
        given = self.known[SET].admission
        return sum(amount for one in given.assignments for _, amount in one.usage) if given else 0


@pytest.fixture
def running() -> Desk:
    """Three pods that run."""
    desk = Desk()
    desk.see(0)
    desk.admit()
    for number in (1, 2):
        desk.see(number)
        desk.finish()
    return desk


def test_the_first_pod_stands_for_all():
    desk = Desk(replicas=3)
    desk.see(0)

    workload = desk.known[SET]
    assert (workload.name, workload.created_ms, workload.held) == ("research/db", 500, None)
    assert [one.count for one in workload.pod_sets] == [3]


def test_pods_that_come_later_take_the_places_that_are_held():
    desk = Desk(replicas=3)
    desk.see(0)
    desk.admit()
    held = [desk.held]
    for number in (1, 2):
        desk.see(number)
        assert desk.finish() == []
        held.append(desk.held)

    assert held == [3, 3, 3]
    assert list(desk.known) == [SET]
    assert all(one.admission for one in desk.pods.values())


def test_until_its_stateful_set_is_known_it_waits():
    desk = Desk()
    desk.take(*desk.books.apply(StatefulSetGone(UID)))
    desk.see(0)

    assert desk.known[SET].held.code == ReasonCode.NOT_EVALUATED


def test_a_replaced_pod_finds_its_place_kept(running: Desk):
    running.see(1, gates=(), admission=running.pods["db-1"].admission, node=NodeName("a100-1"), deleting=True)
    running.gone(1)
    between = running.held
    running.see(1, uid=PodUid("db-1b"))
    running.finish()

    assert (between, running.held) == (3, 3)
    assert running.pods["db-1"].admission is not None


def test_growth_is_admitted_pod_by_pod_and_counted_apart(running: Desk):
    running.scale(4)
    running.see(3)
    running.finish()
    waits = running.known[WorkloadUid("db-3")]
    running.admit_alone(3)

    assert waits.admission is None
    assert [one.count for one in waits.pod_sets] == [1]
    assert running.held == 3
    assert running.known[WorkloadUid("db-3")].admission is not None
    assert running.books.workload_of(running.pods["db-3"]) == "db-3"


def test_growth_takes_no_place_of_a_pod_that_is_being_replaced(running: Desk):
    running.scale(4)
    running.see(3)
    running.gone(1)
    running.finish()

    assert running.pods["db-3"].admission is None
    assert running.known[WorkloadUid("db-3")].admission is None
    assert running.held == 3


def test_scaled_down_it_gives_back_once_every_pod_says_so(running: Desk):
    running.scale(1)
    for number in (2, 1):
        running.gone(number)
    before = running.held
    (write,) = running.finish()
    running.lower([write])

    assert (before, running.held) == (3, 1)
    assert read_admission(PodUid("db-0"), write.admission).assignment.count == 1
    assert running.finish() == []


def test_scaled_down_and_up_again_it_does_not_take_back_what_it_gave(running: Desk):
    running.scale(1)
    running.gone(2)
    running.gone(1)
    running.lower(running.finish())
    running.scale(2)
    running.see(1, uid=PodUid("db-1"))

    assert running.held == 1
    assert running.known[WorkloadUid("db-1")].admission is None


def test_another_leader_counts_the_same(running: Desk):
    running.scale(2)
    running.gone(2)
    running.lower(running.finish())
    other = Desk(replicas=2)
    for number in (1, 0):
        found = running.pods[f"db-{number}"]
        other.see(number, gates=(), admission=found.admission, node=found.node)

    assert other.held == running.held == 2


def test_a_rollout_to_other_requests_gives_back_and_takes_pod_by_pod(running: Desk):
    running.gone(2)
    running.see(2, uid=PodUid("db-2"), requests=((GPU, 2),))
    running.lower(running.finish())
    waits = running.known[WorkloadUid("db-2")]

    assert running.held == 2
    assert (waits.admission, waits.pod_sets[0].requests) == (None, ((GPU, 2),))


def test_a_pod_of_another_queue_stands_apart(running: Desk):
    running.gone(2)
    running.see(2, uid=PodUid("db-2"), queue=LocalQueueName("other"))
    running.finish()

    assert running.known[WorkloadUid("db-2")].queue.name == "other"


def test_stopped_it_waits_as_a_whole_in_its_old_place(running: Desk):
    writes = running.books.evict(Evict(SET, None, EvictionReason.CLUSTER_QUEUE_STOPPED, "stopped"))
    for number in range(3):
        found = running.pods[f"db-{number}"]
        running.see(number, gates=(), admission=found.admission, node=found.node, deleting=True)
    leaving = running.known[SET]
    for number in (2, 1, 0):
        running.gone(number)
    assert SET not in running.known

    running.see(0, uid=PodUid("db-0b"), created_ms=90_000)
    again = running.known[SET]
    assert len(writes) == 3
    assert leaving.evicted
    assert (again.admission, again.created_ms, [one.count for one in again.pod_sets]) == (None, 500, [3])


def test_pods_that_outlive_their_set_are_charged_each_for_itself(running: Desk):
    running.take(*running.books.apply(StatefulSetGone(UID)))
    for number in range(3):
        found = running.pods[f"db-{number}"]
        running.see(number, gates=(), admission=found.admission, node=found.node, owner=None)

    assert SET not in running.known
    assert {uid: one.admission.assignments[0].usage for uid, one in running.known.items()} == {
        f"db-{number}": ((GPU, 1),) for number in range(3)
    }


def test_one_that_runs_without_us_is_charged_for_what_runs():
    desk = Desk(replicas=3)
    from_before = {"gates": (), "node": NodeName("a100-1"), "managed": False}
    desk.see(0, **from_before)

    assert desk.known[SET].held.code == ReasonCode.UNCOUNTED
