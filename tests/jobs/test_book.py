"""The book of Jobs: facts about Jobs and pods become facts about workloads, decisions become one write each."""

import msgspec
import pytest

from extender.jobs.admission import JobAdmission, read_job_admission, write_job_admission
from extender.jobs.placement import JobPlacement
from extender.model.effects import Admit, Evict, EvictionReason, EvictPod
from extender.model.errors import NotYetSeen
from extender.model.events import AdmissionRefused, EvictionRefused, PodGone, PriorityClassSeen, WorkloadGone
from extender.model.jobs import (
    GrowJob,
    JobGone,
    NudgePod,
    PodPriorityClassSeen,
    ReleaseJob,
    ResetStart,
    SetJobCondition,
    StopJob,
    SuspendJob,
)
from extender.model.names import NodeName, PodUid, WorkloadUid
from extender.model.questions import PlacementQuestion, PodInQuestion
from extender.model.reasons import ReasonCode
from tests.jobs.build import GPU, UID, Play, admission, admitted, evicted, job, told, unit_pod

SUSPENDED = {"conditions": [{"type": "Suspended", "status": "True"}]}


class AllowAll:
    """No quota rule protects anybody."""

    def may_preempt(self, preemptor: WorkloadUid, victim: WorkloadUid) -> bool:
        return True


def usage(workload) -> int:
    return 0 if workload.admission is None else dict(workload.admission.assignments[0].usage)[GPU]


def filtered(play: Play, pod, *, nodes=("blue", "green")) -> list[str]:
    question = PodInQuestion(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        managed=True,
        unit=True,
        unit_admission=pod.unit_admission,
        controller=pod.owner.uid,
    )
    return JobPlacement(play.shelf, AllowAll()).filter(PlacementQuestion(question, list(nodes))).nodes


def test_a_held_job_waits_as_one_workload():
    workload = told(Play().sees(job()))

    assert (workload.uid, workload.queue, workload.held) == (UID, ("lab", "lab"), None)
    assert (workload.pod_sets[0].count, workload.pod_sets[0].requests) == (4, ((GPU, 1),))


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        pytest.param({"status": {**SUSPENDED, "active": 2}}, ReasonCode.PODS_LEAVING, id="pods of its last run"),
        pytest.param(
            {"metadata__annotations": {"cohort-extender.io/active": "false"}}, ReasonCode.DEACTIVATED, id="deactivated"
        ),
        pytest.param(
            {"metadata__annotations": {"kueue.x-k8s.io/job-min-parallelism": "x"}},
            ReasonCode.REQUEST_INVALID,
            id="a minimum that is no number",
        ),
        pytest.param(
            {"metadata__annotations": {"kueue.x-k8s.io/priority-class": "none"}},
            ReasonCode.REQUEST_INVALID,
            id="a class that does not exist",
        ),
    ],
)
def test_a_job_is_not_tried_while(changes, want):
    workload = told(Play().sees(job(**changes)))

    assert workload.held is not None
    assert workload.held.code is want


def test_a_new_job_is_told_of_when_its_controller_has_seen_it():
    play = Play()

    assert play.sees(job(status={})) == []
    assert told(play.sees(job())).held is None


def test_priority_comes_from_the_label_then_from_the_template_then_from_the_default():
    play = Play()
    play.shelf.apply(PodPriorityClassSeen("usual", 3, is_default=True))
    play.shelf.apply(PodPriorityClassSeen("high", 9))
    play.shelf.apply(PriorityClassSeen("urgent", 70))

    labels = {"kueue.x-k8s.io/queue-name": "lab", "cohort-extender.io/managed": "true"}
    assert told(play.sees(job())).priority == 3
    assert told(play.sees(job(spec__template__spec__priorityClassName="high"))).priority == 9
    urgent = {**labels, "kueue.x-k8s.io/priority-class": "urgent"}
    assert told(play.sees(job(metadata__labels=urgent))).priority == 70


def test_one_write_admits():
    play = Play()
    play.sees(job())
    write = play.starts()

    (template,) = write.templates
    assert template.node_selector == (("color", "blue"),)
    assert [one.value for one in template.tolerations or ()] == ["blue"]
    assert dict(template.labels)["cohort-extender.io/managed"] == "true"
    assert (write.parallelism, write.completions, write.was_evicted) == (None, None, False)
    assert read_job_admission("u1", write.admission).admission == admission()


def test_an_admission_is_only_for_the_job_it_was_written_for():
    play = Play()
    play.sees(job())
    write = play.starts()

    assert read_job_admission("u2", write.admission) is None


@pytest.mark.parametrize("names", [(), ("main", "other")], ids=["none", "two"])
def test_an_admission_of_other_pod_sets_than_the_job_has_is_left_as_it_is(names):
    play = Play()
    (part,) = admission().assignments
    parts = tuple(msgspec.structs.replace(part, name=name) for name in names)
    given = JobAdmission("a1", msgspec.structs.replace(admission(), assignments=parts))
    annotations = {"cohort-extender.io/admission": write_job_admission("u1", given)}
    play.sees(job(spec__suspend=False, spec__parallelism=1, metadata__annotations=annotations))

    assert play.shelf.finish() == []


def test_an_admitted_job_holds_its_count_and_gives_back_what_no_pod_will_use():
    play = Play()
    running, _ = play.runs()

    assert usage(play.shelf.jobs._told[UID]) == 4
    assert usage(told(play.sees(msgspec.structs.replace(running, done=3)))) == 1


def test_an_evicted_job_is_charged_pod_by_pod_and_waits_when_the_last_has_ended():
    play = Play()
    play.sees(job())
    write = play.starts()
    unit = dict(write.templates[0].annotations)["cohort-extender.io/unit-admission"]
    play.sees(admitted(write))
    for name in ("a", "b"):
        play.sees_pod(unit_pod(name, unit=unit, node=NodeName("blue")))
    unseen = told(play.sees(evicted(write)))
    one_left = told(play.shelf.apply(PodGone(PodUid("a"))))
    play.sees(evicted(write, status=SUSPENDED))
    free = told(play.shelf.apply(PodGone(PodUid("b"))))

    assert (usage(unseen), unseen.evicted) == (2, True)
    assert usage(one_left) == 1
    assert (free.admission, free.held) == (None, None)


def test_a_job_that_moves_to_another_flavor_carries_nothing_of_the_first():
    play = Play()
    play.sees(job())
    first = play.starts()
    play.sees(admitted(first))
    waiting = told(play.sees(evicted(first, status=SUSPENDED)))
    second = play.starts(admission(flavor="green", at_ms=9_000))

    assert waiting.pod_sets[0].node_selector == ()
    assert waiting.pod_sets[0].tolerations == ()
    assert second.templates[0].node_selector == (("color", "green"),)
    assert [one.value for one in second.templates[0].tolerations or ()] == ["green"]
    assert second.was_evicted


def test_partial_admission_writes_the_count_and_the_eviction_puts_it_back():
    play = Play()
    play.sees(job(metadata__annotations={"kueue.x-k8s.io/job-min-parallelism": "2"}))
    write = play.starts(admission(count=3))
    play.sees(admitted(write, spec__parallelism=3))
    stop, _ = play.shelf.evict(Evict(UID, None, EvictionReason.IN_CLUSTER_QUEUE, "room"))

    assert write.parallelism == 3
    assert isinstance(stop, StopJob)
    assert (stop.parallelism, stop.admission, stop.deactivate) == (4, write.admission, False)


def test_a_refused_admission_is_given_back_and_after_a_conflict_only_when_the_change_is_seen():
    play = Play()
    play.sees(job())
    write = play.starts()

    assert play.shelf.refuse_job(write, "conflict: changed") == []
    assert play.sees(job())[0] == AdmissionRefused(UID, "conflict: changed")

    again = play.starts()
    given_back, seen = play.shelf.refuse_job(again, "invalid: not yet")
    assert given_back == AdmissionRefused(UID, "invalid: not yet")
    assert told([seen]).held.code is ReasonCode.WRITE_RETRY
    assert told(play.sees(job())).held is None


def test_a_refused_eviction_may_be_chosen_again():
    play = Play()
    play.runs()
    stop, _ = play.shelf.evict(Evict(UID, None, EvictionReason.IN_CLUSTER_QUEUE, "room"))

    assert play.shelf.refuse_job(stop, "invalid: gone") == [EvictionRefused(UID, "invalid: gone")]


def repair(play: Play, found):
    play.sees(found)
    return [type(effect) for effect in play.shelf.finish()]


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        pytest.param({}, [], id="a held Job asks for nothing"),
        pytest.param({"spec__suspend": False, "status": {}}, [SuspendJob], id="one that runs without us is suspended"),
        pytest.param(
            {"metadata__labels": {"kueue.x-k8s.io/queue-name": "lab"}}, [SuspendJob], id="one without marks gets them"
        ),
        pytest.param(
            {"status": {**SUSPENDED, "startTime": "2026-01-31T08:01:00Z"}}, [ResetStart], id="1.35 keeps the start time"
        ),
        pytest.param(
            {"metadata__labels": {"cohort-extender.io/managed": "true"}},
            [ReleaseJob],
            id="one without a queue goes free",
        ),
        pytest.param(
            {"status": {"conditions": [{"type": "Complete", "status": "True"}]}, "spec__suspend": False},
            [],
            id="a finished one is left alone",
        ),
    ],
)
def test_a_state_asks_for_its_write_by_itself(changes, want):
    play = Play()

    assert repair(play, job(**changes)) == want
    assert play.shelf.finish() == []


def test_suspending_by_hand_is_an_eviction_that_stays():
    play = Play()
    running, _ = play.runs()
    play.shelf.finish()
    play.sees(msgspec.structs.replace(running, suspended=True))
    (stop,) = play.shelf.finish()

    assert isinstance(stop, StopJob)
    assert stop.deactivate


def test_a_growing_job_asks_for_the_difference_and_the_pods_that_waited_are_nudged():
    play = Play()
    running, unit = play.runs()
    more = msgspec.structs.replace(running, parallelism=6, completions=None, pods=(_count(running, 6),))
    growth = told(play.sees(more))
    for index in range(6):
        play.sees_pod(unit_pod(f"p{index}", unit=unit, created_ms=index, node=NodeName("blue") if index < 4 else None))
    fifth = play.shelf.pod("p4")

    assert (growth.uid, growth.pod_sets[0].count) == ("growth:u1", 2)
    assert filtered(play, fifth) == []
    part = admission(count=2)
    (grow,) = play.shelf.admit(_admit("growth:u1", part))
    assert isinstance(grow, GrowJob)
    gone, grown = play.sees(msgspec.structs.replace(more, admission=grow.admission))
    assert gone == WorkloadGone(WorkloadUid("growth:u1"))
    assert usage(told([grown])) == 6
    assert [effect.name for effect in play.shelf.finish() if isinstance(effect, NudgePod)] == ["p4", "p5"]
    assert filtered(play, fifth) == ["blue"]


def _count(found, count):
    return msgspec.structs.replace(found.pods[0], count=count)


def _admit(uid, given):
    return Admit(WorkloadUid(uid), given)


def test_filter_passes_pods_of_the_admission_in_force_on_its_flavor():
    play = Play()
    _, unit = play.runs()
    pod = unit_pod("a", unit=unit)
    play.sees_pod(pod)

    assert filtered(play, pod) == ["blue"]
    assert filtered(play, unit_pod("unseen", unit=unit)) == ["blue"]


def test_filter_refuses_pods_of_an_admission_that_is_over_and_pods_of_somebody_else():
    play = Play()
    play.sees(job())
    write = play.starts()
    unit = dict(write.templates[0].annotations)["cohort-extender.io/unit-admission"]
    play.sees(admitted(write))
    stranger = unit_pod("s", unit=unit, owner=msgspec.structs.replace(unit_pod("x", unit=unit).owner, uid="other"))
    play.sees_pod(stranger)

    assert filtered(play, stranger) == []
    play.sees(evicted(write))
    assert filtered(play, unit_pod("late", unit=unit)) == []


def test_filter_asks_to_come_again_when_the_admission_has_not_reached_us():
    ahead, behind = Play(), Play()
    _, unit = ahead.runs()
    behind.sees(job())

    with pytest.raises(NotYetSeen):
        filtered(behind, unit_pod("a", unit=unit))


def test_an_admission_that_is_being_written_counts_for_pods_that_show_it():
    play = Play()
    play.sees(job())
    unit = dict(play.starts().templates[0].annotations)["cohort-extender.io/unit-admission"]

    assert filtered(play, unit_pod("a", unit=unit)) == ["blue"]


def test_pods_that_outlive_their_job_stay_charged_and_are_evicted_one_by_one():
    play = Play()
    _, unit = play.runs()
    play.sees_pod(unit_pod("a", unit=unit, node=NodeName("blue")))
    left = play.shelf.apply(JobGone("u1"))
    evictions = play.shelf.evict(Evict(UID, None, EvictionReason.IN_CLUSTER_QUEUE, "room"))

    assert usage(told(left)) == 1
    assert [type(effect) for effect in evictions] == [EvictPod]
    assert play.shelf.apply(PodGone(PodUid("a"))) == [WorkloadGone(UID)]


def test_the_reason_is_written_on_the_job_alone():
    play = Play()
    play.runs()
    (said,) = play.shelf.condition(UID, None)

    assert isinstance(said, SetJobCondition)
    assert (said.status, said.reason) == (True, "Admitted")
