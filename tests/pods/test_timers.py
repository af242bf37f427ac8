"""Time is asked, never read: what comes due, when, and what makes a deadline void."""

import pytest

from extender.model.names import WorkloadUid
from extender.pods.timers import CHANGES_MAX, Clocked, Due, ReadyTimes, Timers, Times, What

UID = WorkloadUid("w")
MINUTE = 60_000
READY = Times(group_ms=5 * MINUTE, ready=ReadyTimes(timeout_ms=10_000, recovery_ms=3_000))
WAITS, STARTING = Clocked(ready=False), Clocked(admitted_ms=1_000, ready=False)
RUNS = Clocked(admitted_ms=1_000, ready=True)


def timers(times: Times = READY, **noted: Clocked) -> Timers:
    made = Timers(times)
    for uid, clocked in noted.items():
        made.note(WorkloadUid(uid), clocked)
    return made


@pytest.mark.parametrize(
    ("clocked", "what", "at_ms"),
    [
        pytest.param(Clocked(incomplete_ms=2_000), What.GROUP_INCOMPLETE, 2_000 + 5 * MINUTE, id="an incomplete group"),
        pytest.param(STARTING, What.NOT_STARTED, 11_000, id="not ready in time"),
        pytest.param(
            Clocked(admitted_ms=1_000, ready=True, run_s_max=60), What.RAN_TOO_LONG, 61_000, id="ran long enough"
        ),
    ],
)
def test_what_comes_due_comes_once(clocked, what, at_ms):
    clock = timers(w=clocked)

    assert clock.due(at_ms - 1) == []
    assert clock.due(at_ms) == [Due(what, UID)]
    assert clock.due(10 * at_ms) == []


def test_a_question_looks_at_some_changes_and_is_due_again_at_once():
    clock = timers(**{f"w{number}": STARTING for number in range(CHANGES_MAX + 1)})
    first = clock.due(2_000), clock.next_due_ms()
    second = clock.due(2_000), clock.next_due_ms()

    assert first == ([], 0)
    assert second == ([], 11_000)
    assert len(clock.due(11_000)) == CHANGES_MAX + 1


def test_the_next_deadline_is_known():
    clock = timers(w=STARTING)
    assert clock.next_due_ms() is None  # nothing was asked yet

    clock.due(2_000)
    assert clock.next_due_ms() == 11_000


@pytest.mark.parametrize(
    "then",
    [
        pytest.param(RUNS, id="ready"),
        pytest.param(WAITS, id="told to stop"),
        pytest.param(None, id="gone"),
    ],
)
def test_a_deadline_is_void(then):
    clock = timers(w=STARTING)
    clock.due(2_000)
    clock.note(UID, then)

    assert clock.due(MINUTE) == []


def test_what_was_ready_has_to_recover_from_when_it_was_seen_unready():
    clock = timers(w=RUNS)
    clock.due(5_000)
    clock.note(UID, STARTING)
    clock.due(50_000)
    clock.note(UID, Clocked(admitted_ms=1_000, ready=False, run_s_max=600))  # another change does not begin anew

    assert clock.due(52_999) == []
    assert clock.due(53_000) == [Due(What.NOT_RECOVERED, UID)]


def test_without_a_recovery_time_it_may_stay_unready():
    clock = timers(Times(ready=ReadyTimes(timeout_ms=10_000, recovery_ms=0)), w=RUNS)
    clock.due(5_000)
    clock.note(UID, STARTING)

    assert clock.due(100 * MINUTE) == []


def test_a_new_leader_gives_time_to_what_it_meets_unready():
    clock = timers(w=STARTING)  # admitted long ago, perhaps ready in between

    assert clock.due(90 * MINUTE) == []
    assert clock.due(90 * MINUTE + 3_000) == [Due(What.NOT_STARTED, UID)]


def test_off_means_off():
    clock = timers(Times(group_ms=0), w=STARTING, group=Clocked(incomplete_ms=0))

    assert clock.due(1000 * MINUTE) == []


def test_another_pod_gives_an_incomplete_group_new_time():
    clock = timers(w=Clocked(incomplete_ms=0))
    clock.due(0)
    clock.note(UID, Clocked(incomplete_ms=2 * MINUTE))

    assert clock.due(5 * MINUTE) == []
    assert clock.due(7 * MINUTE) == [Due(What.GROUP_INCOMPLETE, UID)]


def test_execution_time_adds_up_over_admissions():
    clock = timers(w=Clocked(admitted_ms=0, run_s_max=60))
    clock.due(0)
    clock.note(UID, Clocked(run_s_max=60))  # evicted after 40 s
    clock.due(40_000)
    clock.note(UID, Clocked(admitted_ms=100_000, run_s_max=60))

    assert clock.due(119_999) == []
    assert clock.due(120_000) == [Due(What.RAN_TOO_LONG, UID)]


def test_an_eviction_that_did_not_happen_takes_no_execution_time():
    admitted = Clocked(admitted_ms=0, run_s_max=60)
    clock = timers(w=admitted)
    clock.due(0)
    clock.note(UID, Clocked(run_s_max=60))
    clock.due(10_000)
    clock.note(UID, admitted)  # the eviction was refused

    assert clock.due(59_999) == []
    assert clock.due(60_000) == [Due(What.RAN_TOO_LONG, UID)]


def test_back_off_doubles_up_to_its_end():
    clock = timers()

    assert [clock.backoff_ms(attempt) // 1000 for attempt in range(1, 9)] == [60, 120, 240, 480, 960, 1920, 3600, 3600]


def test_what_was_refused_is_tried_again_later_and_later():
    clock = timers()

    assert [clock.delay_ms("pod") for _ in range(7)] == [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]
    clock.succeeded("pod")
    assert clock.delay_ms("pod") == 1_000


def test_a_later_plan_for_a_retry_makes_the_earlier_one_void():
    clock = timers()
    clock.retry_at("hold:w", 1_000)
    clock.retry_at("hold:w", 5_000)

    assert clock.due(4_999) == []
    assert clock.due(5_000) == [Due(What.RETRY, "hold:w")]
