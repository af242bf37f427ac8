"""Which write goes next, when, and what becomes pointless."""

import pytest

from extender.kube.outbox import IN_FLIGHT_FIRST, REST_S, Bucket, Outbox, Pace, Window
from extender.model.effects import EvictionReason, EvictPod, RecordEvent, SetPodCondition, SetQueueStatus, UngatePod


def ungate(name):
    return UngatePod("w", name, "ns", name, "1", "{}", (), None)


def evict(name):
    return EvictPod("w", name, "ns", name, EvictionReason.IN_CLUSTER_QUEUE, "why")


def condition(name, message="m"):
    return SetPodCondition(name, "ns", name, False, "QuotaUsed", message)


def event(name, message="m"):
    return RecordEvent(name, "ns", name, "Preempted", message)


def status(name, text=b"{}"):
    return SetQueueStatus("ClusterQueue", "", name, text)


def put(box, *effects, now=0.0):
    return [dropped for effect in effects for dropped in box.put(effect, now)]


def take_all(box, now=0.0):
    taken = []
    while (job := box.take(now)) is not None:
        taken.append(job)
    return taken


def effects(jobs):
    return [job.effect for job in jobs]


@pytest.fixture
def box():
    return Outbox()


def test_acts_go_first_and_in_order(box):
    put(box, condition("a"), status("q"), ungate("b"), evict("c"), ungate("d"))

    assert effects(take_all(box)) == [ungate("b"), evict("c"), ungate("d"), status("q"), condition("a")]


def test_one_write_about_an_object_at_a_time(box):
    put(box, ungate("a"), evict("a"), condition("a"))
    (first,) = take_all(box)
    box.finish(first)
    (second,) = take_all(box)
    box.finish(second)

    assert effects([first, second, *take_all(box)]) == [ungate("a"), evict("a"), condition("a")]


def test_the_newest_word_replaces_the_older_in_its_place(box):
    dropped = put(box, condition("a", "old"), condition("b"), condition("a", "new"))

    assert dropped == [(condition("a", "old"), "superseded")]
    assert effects(take_all(box)) == [condition("a", "new"), condition("b")]


def test_an_act_makes_the_words_about_its_pod_pointless(box):
    dropped = put(box, condition("a"), ungate("a"))

    assert dropped == [(condition("a"), "superseded")]
    assert effects(take_all(box)) == [ungate("a")]


def test_conditions_have_a_pace(box):
    put(box, *[condition(f"p{i}") for i in range(20)])
    counts = [len(take_all(box, now)) for now in (0.0, 0.1, 0.2, 1.0, 10.0)]

    assert counts == [5, 0, 1, 4, 5]


def test_it_says_when_the_next_word_is_due(box):
    put(box, *[condition(f"p{i}") for i in range(6)])
    take_all(box)

    assert box.due_in_s(0.0) == pytest.approx(0.2)


def test_words_that_wait_for_a_write_to_end_are_not_due_by_time(box):
    put(box, ungate("a"))
    take_all(box)
    put(box, condition("a"))

    assert box.take(0.0) is None
    assert box.due_in_s(0.0) is None


def test_a_write_to_try_again_comes_when_it_is_due_and_blocks_its_object_until_then(box):
    put(box, evict("a"))
    (job,) = take_all(box)
    box.again(job, 5.0)
    put(box, ungate("a"), ungate("b"))

    assert effects(take_all(box, 1.0)) == [ungate("b")]
    assert box.due_in_s(1.0) == 4.0
    assert effects(take_all(box, 5.0)) == [evict("a")]
    assert job.attempts == 2
    assert job.deadline_s == 600.0


def test_the_same_event_is_told_once_in_five_minutes(box):
    dropped = put(box, event("a"), event("a"), event("a", "other"), event("b"), now=0.0)
    again = [put(box, event("a"), now=now) for now in (299.0, 301.0)]

    assert dropped == [(event("a"), "told within five minutes")]
    assert again == [[(event("a"), "told within five minutes")], []]
    assert effects(take_all(box, 301.0)) == [event("a"), event("a", "other"), event("b"), event("a")]


def test_what_may_be_told_again_is_not_remembered(box):
    for second in range(1000):
        put(box, event(f"pod-{second}"), now=float(second))

    assert len(box._told) == 300


def test_open_acts_are_counted_until_they_end(box):
    put(box, ungate("a"), evict("b"), condition("c"))
    jobs = take_all(box)
    counts = [box.open_acts]
    for job in jobs:
        box.finish(job)
        counts.append(box.open_acts)

    assert counts == [2, 1, 0, 0]
    assert len(box) == 0


def test_too_many_acts_are_refused_and_too_many_words_drop_the_oldest(box, monkeypatch):
    monkeypatch.setattr("extender.kube.outbox.ACTS_MAX", 1)
    box = Outbox(Pace(conditions_burst=10))
    box._conditions.most = 2

    dropped = put(box, ungate("a"), ungate("b"), condition("c"), condition("d"), condition("e"))

    assert dropped == [(ungate("b"), "1 writes wait already"), (condition("c"), "superseded")]


def test_a_bucket_fills_up_to_its_burst():
    bucket = Bucket(rate=2.0, burst=1)
    waits = []
    for now in (0.0, 0.0, 0.25, 0.5, 100.0):
        waits.append(bucket.wait_s(now))
        if waits[-1] == 0:
            bucket.take()

    assert waits == [0.0, 0.5, 0.25, 0.0, 0.0]


def test_what_waits_for_a_token_is_due_by_the_moment_at_which_it_was_asked_for():
    """Found on a busy machine: asked a moment later, when the token had come, nothing was due, and the word stayed."""
    outbox = Outbox()
    for number in range(11):
        list(outbox.put(SetQueueStatus("ClusterQueue", "", f"q{number}", b"{}"), 100.0))
    while (job := outbox.take(100.0)) is not None:
        outbox.finish(job)
    before_s = 100.1999

    assert outbox.take(before_s) is None
    due_s = outbox.due_in_s(before_s)
    assert due_s is not None
    assert due_s > 0


def test_after_a_rest_few_are_in_flight_and_more_with_each_answer():
    window = Window(IN_FLIGHT_FIRST + 2)
    sizes = [window.size(100.0)]
    for _ in range(3):
        window.answered(100.0)
        sizes.append(window.size(100.0))
    rested = window.size(100.0 + REST_S), window.size(100.1 + REST_S)

    assert sizes == [IN_FLIGHT_FIRST, IN_FLIGHT_FIRST + 1, IN_FLIGHT_FIRST + 2, IN_FLIGHT_FIRST + 2]
    assert rested == (IN_FLIGHT_FIRST + 2, IN_FLIGHT_FIRST)


def test_a_window_is_never_wider_than_asked():
    assert Window(1).size(0.0) == 1
