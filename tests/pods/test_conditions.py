"""Reasons are written soon when they matter and seldom when only numbers move."""

import pytest

from extender.model.names import WorkloadUid
from extender.model.reasons import ReasonCode, reason
from extender.pods.conditions import BURST, CODE_HELD_MS, NUMBERS_MS, WRITES_PER_S, Conditions

UID = WorkloadUid("w")
MISSING = reason(ReasonCode.QUEUE_NOT_FOUND, queue="q", namespace="n")


def used(short: int):
    return reason(ReasonCode.QUOTA_USED, cluster_queue="cq", used=8, nominal=8, resource="gpu", flavor="f", short=short)


LEAVING = reason(ReasonCode.VICTIMS_LEAVING, left=1, victims=1)


def test_the_first_reason_is_due_at_once_and_once():
    conditions = Conditions()
    conditions.note(UID, used(1), 0)

    assert conditions.due(0) == [(UID, used(1))]
    assert conditions.due(10_000_000) == []


@pytest.mark.parametrize(
    ("second", "at"),
    [
        pytest.param(LEAVING, CODE_HELD_MS, id="another code when it has held"),
        pytest.param(used(2), NUMBERS_MS, id="other numbers after long"),
        pytest.param(MISSING, 0, id="an edit is needed: at once"),
    ],
)
def test_a_later_reason_is_due(second, at):
    conditions = Conditions()
    conditions.note(UID, used(1), 0)
    conditions.due(0)
    conditions.note(UID, second, 0)

    assert conditions.due(at - 1) == []
    assert conditions.due(at) == [(UID, second)]


def test_a_reason_that_comes_and_goes_is_not_written():
    conditions = Conditions()
    conditions.note(UID, used(1), 0)
    conditions.due(0)
    conditions.note(UID, LEAVING, 100)
    conditions.note(UID, used(1), 200)

    assert conditions.due(10_000_000) == []


def test_an_admission_is_written_only_where_a_reason_stands():
    conditions = Conditions()
    conditions.note(UID, None, 0)
    assert conditions.due(0) == []

    conditions.note(UID, used(1), 0)
    conditions.due(0)
    conditions.note(UID, None, 1)
    assert conditions.due(1) == [(UID, None)]


def test_an_admission_before_the_reason_was_written_saves_the_write():
    conditions = Conditions()
    conditions.note(UID, used(1), 0)
    conditions.note(UID, None, 0)

    assert conditions.due(10_000) == []


def test_a_workload_that_is_gone_is_not_written():
    conditions = Conditions()
    conditions.note(UID, used(1), 0)
    conditions.drop(UID)

    assert conditions.due(0) == []


def test_writes_a_second_are_bounded():
    conditions = Conditions()
    for number in range(1000):
        conditions.note(WorkloadUid(f"w{number}"), used(1), 0)

    assert len(conditions.due(0)) == BURST
    assert len(conditions.due(1000)) == WRITES_PER_S
    assert conditions.next_due_ms(1000) == 1200
