"""What groups hang on: PodGroups, StatefulSets; and pods that need a word of their own."""

import pytest

from extender.model.events import PodGroupGone, PodGroupSeen, PodSeen, StatefulSetGone, StatefulSetSeen, WorkloadSeen
from extender.model.names import Namespace, PodUid, WorkloadUid
from extender.model.pods import Owner
from extender.model.reasons import ReasonCode
from tests.pods.build import admit, hospital_books, pod
from tests.pods.test_gangs import admit_gang, member, told

LAB = Namespace("research")
NATIVE = WorkloadUid("group:research/podgroup/native")


@pytest.fixture
def books():
    return hospital_books()


def native(name: str, **changes: object):
    return pod(name, pod_group="native", **changes)


def last(events) -> WorkloadSeen:
    assert isinstance(events[-1], WorkloadSeen)
    return events[-1].workload


def test_a_pod_group_says_how_many_it_needs(books):
    books.apply(PodGroupSeen(LAB, "native", 2))

    assert told(books, native("a")).held.code == ReasonCode.GANG_INCOMPLETE
    workload = told(books, native("b"))
    assert (workload.uid, workload.held, workload.pod_sets[0].count) == (NATIVE, None, 2)


def test_a_pod_group_that_is_missing_is_waited_for(books):
    held = told(books, native("a")).held
    assert held.sentence().startswith("PodGroup native does not exist")

    assert last(books.apply(PodGroupSeen(LAB, "native", 1))).held is None
    assert last(books.apply(PodGroupGone(LAB, "native"))).held.code == ReasonCode.REQUEST_INVALID


def test_a_pod_group_that_is_no_gang_leaves_its_pods_alone(books):
    books.apply(PodGroupSeen(LAB, "native", 0))

    assert told(books, native("a")).uid == "a"


def test_a_group_by_annotation_goes_before_a_pod_group(books):
    books.apply(PodGroupSeen(LAB, "native", 1))

    assert told(books, native("a", group="mine", group_total=2)).held.sentence() == "1 of 2 pods of group mine exist"


def test_a_group_without_a_valid_size_waits_with_the_reason(books):
    held = told(books, member("a", group_total=0, problem="total count: 'x' is not a count; write 1 or more")).held

    assert held.sentence() == "total count: 'x' is not a count; write 1 or more"


def test_an_ordered_stateful_set_is_refused_until_it_is_parallel(books):
    set_of = Owner("StatefulSet", "db", "set-uid")
    books.apply(StatefulSetSeen("set-uid", "db", True))
    held = told(books, member("db-0", owner=set_of)).held
    assert held.code == ReasonCode.REQUEST_INVALID
    assert "create it with podManagementPolicy: Parallel" in held.sentence()

    assert last(books.apply(StatefulSetSeen("set-uid", "db", False))).held.code == ReasonCode.GANG_INCOMPLETE
    assert books.apply(StatefulSetGone("set-uid")) == []


def test_a_pod_too_many_has_a_word_of_its_own_until_it_has_a_place(books):
    told(books, member("a"), member("b"), member("z"))
    assert {uid: why.code for uid, why in books.remarked.items()} == {PodUid("z"): ReasonCode.EXCESS_POD}

    books.remarked = {}
    books.apply(PodSeen(member("a", phase="Failed")))
    assert books.remarked == {PodUid("z"): None}


def test_those_that_a_partial_admission_leaves_out_are_told(books):
    workload = told(books, member("a", group_min=1), member("b", group_min=1))
    (write,) = admit_gang(books, workload, counts=1)
    told(books, member("a", group_min=1, gates=(), admission=write.admission))

    assert books.remarked[PodUid("b")].sentence() == (
        "group sweep was admitted with 1 of its 2 pods, as its minimum allows"
    )


def test_an_admitted_pod_whose_condition_says_otherwise_is_noticed(books):
    told(books, pod("p"))
    (write,) = books.admit(admit("p"))
    told(books, pod("p", gates=(), admission=write.admission, admitted_reason="QuotaUsed"))

    assert list(books.stale) == [PodUid("p")]
