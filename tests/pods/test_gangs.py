"""Groups: all or nothing, whatever is lost on the way."""

import pytest

from extender.model.effects import Admit, Evict, EvictionReason, UngatePod
from extender.model.events import AdmissionRefused, EvictionRefused, PodGone, PodSeen, WorkloadGone, WorkloadSeen
from extender.model.names import ClusterQueueName, LocalQueueName, NodeName, PodUid, WorkloadUid
from extender.model.pods import GATE
from extender.model.reasons import ReasonCode
from extender.model.workload import Admission, PodSetAssignment
from extender.pods.gangs import excess_reason
from tests.pods.build import A100, GPU, hospital_books, pod

GROUP = WorkloadUid("group:research/sweep")


def member(name: str, **changes: object):
    return pod(name, **{"group": "sweep", "group_total": 2, **changes})


def told(books, *pods):
    """The group's workload after *pods* were seen; None if it is over or nothing was told."""
    events = [event for seen in pods for event in books.apply(PodSeen(seen))]
    assert {type(event) for event in events} <= {WorkloadSeen, WorkloadGone}
    last = events[-1] if events else None
    return last.workload if isinstance(last, WorkloadSeen) else None


def admit_gang(books, workload, *, counts=None):
    sets = tuple(
        PodSetAssignment(
            given.name,
            ((GPU, A100),),
            tuple((resource, amount * (counts or given.count)) for resource, amount in given.requests),
            counts or given.count,
        )
        for given in workload.pod_sets
    )
    return books.admit(Admit(GROUP, Admission(ClusterQueueName("training-cq"), sets, 5_000)))


def run(books, name, write, **changes):
    """The write of *name* arrives, and the pod gets a node."""
    fields = {"gates": (), "admission": write.admission, "node": NodeName("a100-1"), **changes}
    return told(books, member(name, **fields))


@pytest.fixture
def books():
    return hospital_books()


@pytest.fixture
def running(books):
    """Both members admitted and bound."""
    workload = told(books, member("a"), member("b"))
    for write in admit_gang(books, workload):
        run(books, write.name, write)
    return books


def test_an_incomplete_group_is_held_with_its_numbers(books):
    held = told(books, member("a")).held

    assert held.code == ReasonCode.GANG_INCOMPLETE
    assert held.sentence() == "1 of 2 pods of group sweep exist"


def test_a_complete_group_is_one_workload_as_old_as_its_oldest_pod(books):
    workload = told(books, member("a", created_ms=9_000), member("b", created_ms=2_000))

    assert (workload.uid, workload.created_ms, workload.held) == (GROUP, 2_000, None)
    assert [(given.count, given.requests) for given in workload.pod_sets] == [(2, ((GPU, 1),))]


def test_pods_of_different_needs_are_different_pod_sets(books):
    workload = told(books, member("driver", requests=((GPU, 0),)), member("worker"))

    assert sorted((given.count, given.requests) for given in workload.pod_sets) == [
        (1, ((GPU, 0),)),
        (1, ((GPU, 1),)),
    ]


@pytest.mark.parametrize(
    ("other", "want"),
    [
        pytest.param({"group_total": 3}, "disagree on their total count: 2 and 3", id="sizes differ"),
        pytest.param({"queue": LocalQueueName("x")}, "disagree on their queue: training and x", id="queues differ"),
    ],
)
def test_a_group_that_disagrees_says_so(books, other, want):
    held = told(books, member("a"), member("b", **other)).held

    assert held.code == ReasonCode.REQUEST_INVALID
    assert want in held.sentence()


def test_a_foreign_gate_on_one_member_holds_all(books):
    assert told(books, member("a"), member("b", gates=(GATE, "x/y"))).held.code == ReasonCode.FOREIGN_GATE


def test_excess_pods_are_left_out_and_told_why(books):
    told(books, member("a"), member("b"), member("c"))

    assert [kept.name for kept in books.pods_of(GROUP)] == ["a", "b"]
    assert "has its 2 pods already" in excess_reason(member("c")).sentence()


def test_admission_writes_every_member(books):
    writes = admit_gang(books, told(books, member("a"), member("b")))

    assert [(write.name, type(write)) for write in writes] == [("a", UngatePod), ("b", UngatePod)]


def test_partial_admission_writes_as_many_as_were_admitted(books):
    workload = told(books, member("a", group_min=1), member("b", group_min=1))
    assert workload.pod_sets[0].count_min == 1

    assert [write.name for write in admit_gang(books, workload, counts=1)] == ["a"]


def test_a_crash_between_two_writes_is_finished(books):
    first, _ = admit_gang(books, told(books, member("a"), member("b")))
    successor = hospital_books()  # the next leader: it knows what the API server shows

    workload = told(successor, member("a", gates=(), admission=first.admission), member("b"))
    (write,) = successor.finish()

    assert workload.admission.assignments[0].count == 2
    assert (write.name, write.workload) == ("b", GROUP)
    assert successor.finish() == []


def test_a_refused_write_of_one_member_does_not_take_the_others_back(books):
    first, second = admit_gang(books, told(books, member("a"), member("b")))
    run(books, "a", first)

    assert books.refuse(second, "conflict: 409") == []
    assert books.finish() == []  # the same write would fail again

    told(books, member("b", resource_version="8"))
    assert [write.name for write in books.finish()] == ["b"]


def test_a_refused_write_of_the_last_hope_takes_the_admission_back(books):
    first, second = admit_gang(books, told(books, member("a"), member("b")))

    assert books.refuse(first, "invalid: 422") == []
    assert books.refuse(second, "invalid: 422") == [AdmissionRefused(GROUP, "invalid: 422")]


def test_an_admission_is_not_taken_back_while_a_conflict_of_it_waits_to_be_seen(books):
    first, second = admit_gang(books, told(books, member("a"), member("b")))

    assert books.refuse(first, "conflict: 409") == []
    assert books.refuse(second, "invalid: 422") == []

    events = books.apply(PodSeen(member("a", resource_version="8")))
    assert events[0] == AdmissionRefused(GROUP, "conflict: 409")


def test_a_failed_member_keeps_its_place_for_its_replacement(running):
    told(running, member("a", phase="Failed"))
    workload = told(running, member("c"))
    (write,) = running.finish()

    assert write.name == "c"
    assert workload is None or workload.admission.assignments[0].count == 2


def test_a_succeeded_member_gives_its_share_back(running):
    a = running.pod("a")
    workload = told(running, member("a", gates=(), admission=a.admission, phase="Succeeded"))

    assert workload.admission.assignments[0].usage == ((GPU, 1),)
    assert workload.admission.assignments[0].count == 1


def test_a_group_ends_with_its_last_member(running):
    for name in ("a", "b"):
        events = running.apply(PodSeen(member(name, admission=running.pod(name).admission, phase="Succeeded")))

    assert events == [WorkloadGone(GROUP)]
    assert running.apply(PodGone(PodUid("a"))) == []


def test_an_evicted_groups_replacements_wait_for_a_new_admission(running):
    workload = None
    for name in ("a", "b"):
        old = running.pod(name)
        workload = told(running, member(name, gates=(), admission=old.admission, node=old.node, deleting=True))
    assert workload.evicted

    told(running, member("c"), member("d"))
    assert running.finish() == []

    for name in ("a", "b"):
        events = running.apply(PodGone(PodUid(name)))
    assert events[-1].workload.admission is None
    assert events[-1].workload.held is None


def test_a_group_holds_its_quota_while_the_admission_of_a_replacement_is_under_way(books, running):
    """Found by the simulator: the quota was given away while an admission on it was still being written."""
    books.apply(PodSeen(member("b", gates=(), phase="Failed", admission=books.pod("b").admission)))
    told(books, member("b2"))
    (write,) = books.finish()
    last = told(books, member("a", gates=(), phase="Succeeded", admission=books.pod("a").admission))

    assert write.name == "b2"
    assert last.admission.assignments[0].count == 1
    assert not last.evicted


def test_a_group_whose_last_admission_is_not_written_waits_again(books, running):
    books.apply(PodSeen(member("b", gates=(), phase="Failed", admission=books.pod("b").admission)))
    told(books, member("b2"))
    (write,) = books.finish()
    told(books, member("a", gates=(), phase="Succeeded", admission=books.pod("a").admission))
    (event,) = books.refuse(write, "gone: no such pod")

    assert event.workload.admission is None


def test_a_group_that_was_told_to_stop_is_not_finished_any_more(books, running):
    """Found by the simulator: replacements would keep it running, and its preemptor waiting, for ever."""
    books.evict(Evict(GROUP, WorkloadUid("preemptor"), EvictionReason.IN_CLUSTER_QUEUE, ""))
    books.apply(PodGone(PodUid("a")))
    told(books, member("a2"))

    assert books.finish() == []


def test_a_group_goes_on_when_its_eviction_is_refused(books, running):
    first, _ = books.evict(Evict(GROUP, WorkloadUid("preemptor"), EvictionReason.IN_CLUSTER_QUEUE, ""))
    books.apply(PodGone(PodUid("a")))
    told(books, member("a2"))
    events = books.refuse_eviction(first, "expired: a disruption budget")

    assert events == [EvictionRefused(GROUP, "expired: a disruption budget")]
    assert [write.name for write in books.finish()] == ["a2"]


def test_a_member_that_has_succeeded_gives_its_quota_back_for_good(books, running):
    """Found by the simulator: usage grew again when the object of a finished member was cleaned away."""
    told(books, member("b", gates=(), phase="Succeeded", admission=books.pod("b").admission))
    events = books.apply(PodGone(PodUid("b")))
    last = told(books, member("a", gates=(), admission=books.pod("a").admission, priority=7))

    assert events == []
    assert last.admission.assignments[0].count == 1


def test_a_later_group_of_the_same_name_starts_from_nothing(books, running):
    for name in ("a", "b"):
        told(books, member(name, gates=(), phase="Succeeded", admission=books.pod(name).admission))
        books.apply(PodGone(PodUid(name)))

    assert told(books, member("c"), member("d")).pod_sets[0].count == 2


def test_an_admission_whose_pods_ended_before_they_were_seen_is_given_back(books):
    """Found by the simulator: the engine waited for its confirmation, and the rest of the group for ever."""
    workload = told(books, member("a", group_min=1), member("b", group_min=1))
    (write,) = admit_gang(books, workload, counts=1)[:1]
    done = {"group_min": 1, "gates": (), "phase": "Succeeded", "admission": write.admission}
    events = books.apply(PodSeen(member(write.name, **done)))

    assert events[0] == AdmissionRefused(GROUP, "all that was started of it has ended")
    assert events[1].workload.pod_sets[0].count == 1


def test_a_conflict_of_an_earlier_write_does_not_take_back_a_later_one(books):
    """Found by the simulator: the quota was given away while the second write was under way."""
    workload = told(books, member("a"), member("b"))
    first, second = admit_gang(books, workload)
    books.refuse(first, "conflict: the object has been modified")
    books.refuse(second, "gone: no such pod")
    admit_gang(books, workload)
    events = books.apply(PodSeen(member("a", resource_version="8")))

    assert events == []


def test_of_many_facts_about_a_group_only_the_last_state_is_told(books):
    books.begin()
    told_before = [event for name in "abcd" for event in books.apply(PodSeen(member(name, group_total=4)))]
    (event,) = books.settle()

    assert told_before == []
    assert (event.workload.uid, event.workload.pod_sets[0].count, event.workload.held) == (GROUP, 4, None)


def test_a_group_that_comes_and_goes_within_many_facts_is_never_told(books):
    books.begin()
    books.apply(PodSeen(member("a")))
    books.apply(PodGone(PodUid("a")))

    assert books.settle() == []
    assert books.pods_of(GROUP) == []


def test_what_succeeded_under_an_earlier_admission_is_not_taken_off_a_later_one(books, running):
    """Found by the simulator: the rest of a group, admitted anew, held nothing and its quota was given away."""
    told(books, member("a", gates=(), phase="Succeeded", admission=books.pod("a").admission))
    books.apply(PodGone(PodUid("b")))
    rest = told(books, member("c"))
    later = Admission(
        ClusterQueueName("training-cq"),
        tuple(PodSetAssignment(given.name, ((GPU, A100),), ((GPU, 1),), 1) for given in rest.pod_sets),
        9_000,
    )
    (write,) = books.admit(Admit(GROUP, later))
    last = run(books, "c", write)

    assert last.admission == later
