"""What becomes of writes when we lead no more, and of those whose outcome nobody can tell."""

import asyncio

import pytest

from extender.kube.outbox import Outbox
from extender.kube.writer import OutcomeKind
from extender.model.effects import SetPodCondition
from tests.kube.desk import desk_of, evict, ungate
from tests.support.fake_api import Fault, until
from tests.support.objects import pod_json


async def test_what_waits_when_a_term_ends_is_not_sent_in_the_next(api, desk, pod):
    api.fail("POST", "/eviction", Fault(status=429, headers={"Retry-After": "30"}))
    held = asyncio.Event()

    async def waits(seconds):
        await held.wait()

    desk.writer._sleep = waits  # the second attempt is due in half a minute
    desk.writer.submit(evict(pod))
    await until(lambda: api.count("POST", "/eviction") == 1 and desk.writer.counters.retried == 1)

    desk.writer.recall()  # the term ends, and a new one begins at once: ``may_write`` says yes all the time
    await until(lambda: desk.outcomes)

    assert desk.outcomes[0][1].kind is OutcomeKind.FENCED
    assert api.count("POST", "/eviction") == 1
    assert desk.writer.settled


async def test_what_is_in_flight_when_a_term_ends_is_not_sent_again(api, desk, pod):
    api.fail("PATCH", "/pods/p", Fault(hang=True))
    desk.writer.submit(ungate(pod))
    await until(lambda: api.count("PATCH", "/pods/p") == 1)

    desk.writer.recall()
    api._hung.set()
    await until(lambda: desk.outcomes)

    assert api.count("PATCH", "/pods/p") == 1
    assert not desk.writer.settled  # nobody has said that it was not carried out
    desk.clock.forward(16)
    assert desk.writer.settled


async def test_a_new_term_writes(api, desk, pod):
    desk.writer.recall()

    assert await desk.kind(ungate(pod)) is OutcomeKind.DONE


async def test_an_unknown_outcome_that_cannot_be_read_back_is_not_given_up_as_refused(api, desk, pod):
    api.fail("PATCH", "/pods/p", Fault(apply=True, cut=True))
    api.fail("PATCH", "/pods/p", Fault(status=500), times=40)  # for longer than the deadline of a minute
    api.fail("GET", "/pods/p", Fault(status=500), times=3)

    assert await desk.kind(ungate(pod)) is OutcomeKind.DONE
    assert sum(desk.clock.slept) > 60


@pytest.mark.parametrize("when", ["waits", "is in flight", "is to be sent again"])
def test_a_recalled_write_comes_out_at_once(when):
    box = Outbox()
    seen = pod_json("p")
    seen["metadata"] |= {"uid": "u", "resourceVersion": "1"}
    assert not list(box.put(ungate(seen), 0.0))
    job = box.take(0.0) if when != "waits" else None
    if when == "is to be sent again":
        box.again(job, 1000.0)
    box.recall()
    if when == "is in flight":
        box.again(job, 1000.0)

    found = box.take(1.0)

    assert found is not None
    assert box.is_void(found)


def test_a_word_that_replaces_a_recalled_one_is_good():
    box = Outbox()
    assert not list(box.put(SetPodCondition("a", "ns", "a", False, "QuotaUsed", "old"), 0.0))
    box.recall()
    assert len(list(box.put(SetPodCondition("a", "ns", "a", False, "QuotaUsed", "new"), 0.0))) == 1

    found = box.take(1.0)

    assert found is not None
    assert not box.is_void(found)


async def test_a_request_lasts_no_longer_than_it_may(api, client, pod):
    api.fail("PATCH", "/pods/p", Fault(hang=True), times=1000)
    async with desk_of(client, request_s_max=0.05) as desk:
        desk.writer.submit(ungate(pod))
        await until(lambda: desk.writer.counters.retried == 1)

    assert api.count("PATCH", "/pods/p") >= 1


NO_RIGHT = 'pods "p" is forbidden: User "cohort-extender" cannot patch resource "pods" in API group "" in namespace "n"'


async def test_an_api_server_that_starts_and_knows_no_rights_yet_is_asked_again(api, desk, pod):
    api.fail("PATCH", "/pods/p", Fault(status=403, message=NO_RIGHT), times=3)

    assert await desk.kind(ungate(pod)) is OutcomeKind.DONE
    assert api.count("PATCH", "/pods/p") == 4


async def test_without_the_right_a_write_is_given_up_at_its_deadline(api, desk, pod):
    api.fail("PATCH", "/pods/p", Fault(status=403, message=NO_RIGHT), times=1000)

    (outcome,) = await desk.does(ungate(pod))

    assert outcome.kind is OutcomeKind.EXPIRED
    assert "cannot patch resource" in outcome.cause
    assert sum(desk.clock.slept) <= 60


async def test_a_policy_that_forbids_this_very_pod_is_an_answer(api, desk, pod):
    denied = "ValidatingAdmissionPolicy 'p' with binding 'p' denied request: no"
    api.fail("PATCH", "/pods/p", Fault(status=403, message=denied))

    assert await desk.kind(ungate(pod)) is OutcomeKind.INVALID
    assert api.count("PATCH", "/pods/p") == 1
