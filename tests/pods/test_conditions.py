"""Reasons are written soon when they matter and seldom when only numbers move."""

import pytest

from extender.model.names import WorkloadUid
from extender.model.reasons import ReasonCode, reason
from extender.pods.conditions import (
    BURST,
    CODE_HELD_MS,
    FIRST_MS,
    NUMBERS_MS,
    UNSAID_MS,
    VOICES_MAX,
    WRITES_PER_S,
    Conditions,
    Like,
    text,
)

UID = WorkloadUid("w")
MISSING = reason(ReasonCode.QUEUE_NOT_FOUND, queue="q", namespace="n")
NOON_MS = 12 * 3_600_000


def used(short: int):
    return reason(
        ReasonCode.QUOTA_USED, cluster_queue="cq", used=80, nominal=80, resource="gpu", flavor="f", short=short
    )


LEAVING = reason(ReasonCode.VICTIMS_LEAVING, left=1, victims=1)


def behind(position: int):
    return reason(ReasonCode.BEHIND_STRICT_HEAD, position=position, cluster_queue="cq", head="first")


def said(conditions: Conditions, now_ms: int):
    return [(saying.uid, saying.why) for saying in conditions.due(now_ms)]


@pytest.mark.parametrize(
    ("first", "at"),
    [
        pytest.param(MISSING, 0, id="at once where an edit is needed"),
        pytest.param(
            reason(ReasonCode.STOPPED, object="ClusterQueue cq", policy="Hold"), 0, id="at once where it lasts"
        ),
        pytest.param(used(1), FIRST_MS, id="after two seconds where it passes by itself"),
    ],
)
def test_the_first_reason_is_due(first, at):
    conditions = Conditions()
    conditions.note(UID, first, 0)

    assert said(conditions, at - 1) == []
    assert said(conditions, at) == [(UID, first)]
    assert said(conditions, 10_000_000) == []


def test_two_seconds_count_from_the_first_reason_not_from_the_newest():
    conditions = Conditions()
    conditions.note(UID, used(1), 0)
    conditions.note(UID, LEAVING, FIRST_MS - 1)

    assert said(conditions, FIRST_MS) == [(UID, LEAVING)]


def test_who_is_admitted_within_two_seconds_costs_no_word():
    conditions = Conditions()
    conditions.note(UID, used(1), 0)
    conditions.note(UID, None, FIRST_MS - 1)

    assert said(conditions, NUMBERS_MS) == []


@pytest.mark.parametrize(
    ("second", "at"),
    [
        pytest.param(LEAVING, CODE_HELD_MS, id="another code when it has held"),
        pytest.param(used(20), NUMBERS_MS, id="other numbers after long"),
        pytest.param(MISSING, 0, id="an edit is needed: at once"),
    ],
)
def test_a_later_reason_is_due(second, at):
    conditions = Conditions(first_ms=0)
    conditions.note(UID, used(1), 0)
    conditions.due(0)
    conditions.note(UID, second, 0)

    assert said(conditions, at - 1) == []
    assert said(conditions, at) == [(UID, second)]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(used(80), used(81), id="numbers that hardly move"),
        pytest.param(behind(9), behind(2), id="a place in line"),
    ],
)
def test_what_is_not_worth_a_write(first, second):
    conditions = Conditions(first_ms=0)
    conditions.note(UID, first, 0)
    conditions.due(0)
    conditions.note(UID, second, 0)

    assert conditions.due(10 * NUMBERS_MS) == []


def test_a_reason_that_comes_and_goes_is_not_written():
    conditions = Conditions(first_ms=0)
    conditions.note(UID, used(1), 0)
    conditions.due(0)
    conditions.note(UID, LEAVING, 100)
    conditions.note(UID, used(1), 200)

    assert conditions.due(10_000_000) == []


def test_an_admission_is_written_only_where_a_reason_stands():
    conditions = Conditions(first_ms=0)
    conditions.note(UID, None, 0)
    assert said(conditions, 0) == []

    conditions.note(UID, used(1), 0)
    conditions.due(0)
    conditions.note(UID, None, 1)
    assert said(conditions, 1) == [(UID, None)]


def test_an_admission_is_written_where_the_watch_shows_an_old_reason():
    conditions = Conditions(first_ms=0)
    conditions.note(UID, None, 0, shown="QuotaUsed")

    assert said(conditions, 0) == [(UID, None)]
    assert said(conditions, 10_000) == []


def test_an_admission_before_the_reason_was_written_saves_the_write():
    conditions = Conditions(first_ms=0)
    conditions.note(UID, used(1), 0)
    conditions.note(UID, None, 0)

    assert said(conditions, 10_000) == []


def test_after_a_restart_nothing_is_said_twice():
    conditions = Conditions(first_ms=0)
    conditions.note(UID, used(1), 0, shown="QuotaUsed")
    assert conditions.due(10_000) == []

    conditions.note(UID, LEAVING, 20_000)
    assert said(conditions, 20_000 + CODE_HELD_MS) == [(UID, LEAVING)]


def test_a_workload_that_is_gone_is_not_written():
    conditions = Conditions(first_ms=0)
    conditions.note(UID, used(1), 0)
    conditions.drop(UID)

    assert conditions.due(0) == []


def test_writes_a_second_are_bounded():
    conditions = Conditions(first_ms=0)
    for number in range(1000):
        conditions.note(WorkloadUid(f"w{number}"), used(1), 0)

    assert len(conditions.due(0)) == BURST
    assert len(conditions.due(1000)) == WRITES_PER_S
    assert conditions.next_due_ms(1000) == 1200


def test_a_group_of_many_pods_uses_as_many_tokens():
    conditions = Conditions(first_ms=0)
    for number in range(3):
        conditions.note(WorkloadUid(f"w{number}"), used(1), 0)
    conditions.due(0)
    conditions.spend(2 * BURST)
    conditions.note(UID, used(1), 0)

    assert conditions.due(1000) == []
    assert said(conditions, 10_000) == [(UID, used(1))]


@pytest.fixture
def crowd():
    """Twice as many like workloads of one queue as it has voices, all written once."""
    conditions = Conditions(first_ms=0)
    sayings = []
    for number in range(2 * VOICES_MAX):
        like = Like("research/training", f"research/train-{number}", "one gpu")
        conditions.note(WorkloadUid(f"w{number}"), used(1), number, like=like)
        sayings += conditions.due(1000 * number)
    return conditions, sayings


def test_like_workloads_say_the_same_as_the_first_ones_of_their_queue(crowd):
    _, sayings = crowd

    assert [saying.same_as for saying in sayings] == [""] * VOICES_MAX + ["research/train-0"] * VOICES_MAX


def test_only_voices_are_kept_current(crowd):
    conditions, _ = crowd
    for number in range(2 * VOICES_MAX):
        conditions.note(WorkloadUid(f"w{number}"), used(50), 100_000)
    later = [saying for second in range(60) for saying in conditions.due(100_000 + NUMBERS_MS + 1000 * second)]

    assert [saying.uid for saying in later] == [f"w{number}" for number in range(VOICES_MAX)]
    assert all(saying.refresh for saying in later)


def test_another_speaks_when_a_voice_has_gone(crowd):
    conditions, _ = crowd
    conditions.drop(WorkloadUid("w0"))
    conditions.note(WorkloadUid("w30"), used(50), 100_000)

    (saying,) = conditions.due(100_000 + NUMBERS_MS)
    assert (saying.uid, saying.same_as) == ("w30", "")


def test_who_needs_an_edit_is_told_in_full(crowd):
    conditions, _ = crowd
    conditions.note(UID, MISSING, 100_000, like=Like("research/training", "research/odd", "one gpu"))

    (saying,) = conditions.due(100_000)
    assert (saying.same_as, saying.first) == ("", True)


@pytest.mark.parametrize(
    ("why", "same_as", "want"),
    [
        pytest.param(MISSING, "", "no LocalQueue q in namespace n", id="a word that stays true"),
        pytest.param(LEAVING, "", f"{LEAVING.sentence()} (counted 1970-01-01 12:00 UTC)", id="numbers of a moment"),
        pytest.param(behind(7), "", "StrictFIFO: behind first in ClusterQueue cq", id="no place in line"),
        pytest.param(
            behind(7), "n/w", "same as n/w: StrictFIFO: behind first in ClusterQueue cq", id="like another one"
        ),
    ],
)
def test_the_message(why, same_as, want):
    assert text(why, NOON_MS, same_as=same_as) == want


def test_a_group_that_grows_is_counted_when_it_has_stopped_growing():
    conditions = Conditions(first_ms=0)

    def have(number: int):
        return reason(ReasonCode.GANG_INCOMPLETE, have=number, want=9, group="g")

    for number in range(1, 6):
        conditions.note(UID, have(number), 1000 * number)
    (saying,) = conditions.due(5000)
    conditions.note(UID, have(6), 6000)
    conditions.note(UID, have(7), 7000)

    assert saying.why == have(5)
    assert conditions.due(6999 + CODE_HELD_MS) == []
    (saying,) = conditions.due(7000 + CODE_HELD_MS)
    assert (saying.why, saying.refresh) == (have(7), False)


def test_a_pod_that_joins_is_told_what_the_others_were_told():
    conditions = Conditions(first_ms=0)
    conditions.note(UID, used(1), 0)
    conditions.due(0)
    conditions.note(UID, used(1), 60_000, missing=True)

    (saying,) = conditions.due(60_000 + CODE_HELD_MS)
    assert (saying.fill, saying.first) == (True, False)
    assert conditions.due(10 * NUMBERS_MS) == []


def test_what_was_not_written_is_due_again_in_a_while():
    conditions = Conditions(first_ms=0)
    conditions.note(UID, used(1), 0)
    conditions.due(0)
    conditions.unsaid(UID, 100)

    assert said(conditions, 99 + UNSAID_MS) == []
    assert said(conditions, 100 + UNSAID_MS) == [(UID, used(1))]


def test_what_was_not_written_about_one_that_is_gone_is_forgotten():
    conditions = Conditions(first_ms=0)
    conditions.note(UID, used(1), 0)
    conditions.due(0)
    conditions.drop(UID)
    conditions.unsaid(UID, 0)

    assert said(conditions, 10 * UNSAID_MS) == []


def test_that_it_is_in_is_said_again_when_it_was_not_written():
    conditions = Conditions(first_ms=0)
    conditions.note(UID, None, 0, shown="QuotaUsed")
    assert said(conditions, 0) == [(UID, None)]
    conditions.unsaid(UID, 100, admitted=True)

    assert said(conditions, 99 + UNSAID_MS) == []
    assert said(conditions, 100 + UNSAID_MS) == [(UID, None)]
    assert said(conditions, 10 * UNSAID_MS) == []


def test_that_it_is_in_is_not_said_again_of_one_that_waits_by_now():
    conditions = Conditions(first_ms=0)
    conditions.note(UID, None, 0, shown="QuotaUsed")
    conditions.due(0)
    conditions.note(UID, used(1), 50)
    conditions.unsaid(UID, 100, admitted=True)

    assert said(conditions, 100) == [(UID, used(1))]


def test_what_a_former_term_knew_is_let_go_by_and_by():
    conditions = Conditions()
    for number in range(5):
        conditions.note(WorkloadUid(f"w{number}"), used(1), 0)
    known = []
    for _ in range(3):
        conditions.let_go(2)
        known.append(sum(conditions.has(WorkloadUid(f"w{number}")) for number in range(5)))

    assert known == [3, 1, 0]
    assert conditions.next_due_ms(0) is None
