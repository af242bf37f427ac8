"""Effects carried out on the fake API server, and what becomes of each when it misbehaves."""

import asyncio

import orjson
import pytest

from extender.kube.client import ApiClient
from extender.kube.config import ClusterConfig
from extender.kube.outbox import BEGUN_AT_ONCE_MAX, Job, Window, retry_in_s
from extender.kube.writer import IN_FLIGHT_MAX, Outcome, OutcomeKind, Writer
from extender.model.effects import (
    AdoptPod,
    RecordEvent,
)
from extender.model.errors import TooManyRequests, Unreachable
from extender.model.quota import Toleration
from tests.kube.desk import GATE, PODS, condition, desk_of, evict, stored, ungate
from tests.support.fake_api import Fault
from tests.support.objects import pod_json


async def test_an_admission_is_one_patch(api, desk, pod):
    pod["spec"]["schedulingGates"].insert(0, {"name": "other/gate"})
    pod["spec"]["nodeSelector"] = {"zone": "z1"}

    (outcome,) = await desk.does(ungate(pod, tolerations=(Toleration("gpu", "Exists"), Toleration(seconds=3))))

    assert outcome == Outcome(OutcomeKind.DONE)
    assert api.count("PATCH", "/pods/p") == len(api.requests) == 1
    got = stored(api)
    assert got["spec"]["schedulingGates"] == [{"name": "other/gate"}]
    assert got["spec"]["nodeSelector"] == {"zone": "z1", "gpu": "a100"}
    assert got["spec"]["tolerations"] == [
        {"key": "gpu", "operator": "Exists"},
        {"operator": "Equal", "tolerationSeconds": 3},
    ]
    assert got["metadata"]["annotations"][GATE] == '{"clusterQueue":"training"}'
    assert api.requests[0].query["fieldManager"] == "cohort-extender"
    assert "as=PartialObjectMetadata" in api.requests[0].headers["Accept"]


async def test_tolerations_that_do_not_change_are_not_sent(api, desk, pod):
    await desk.does(ungate(pod))

    assert "tolerations" not in orjson.loads(api.bodies[0])["spec"]


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        pytest.param({"resource_version": "1"}, OutcomeKind.CONFLICT, id="somebody wrote first"),
        pytest.param({"uid": "another"}, OutcomeKind.GONE, id="another pod of that name"),
        pytest.param({"name": "q"}, OutcomeKind.GONE, id="no such pod"),
    ],
)
async def test_a_guard_that_does_not_hold_refuses_at_once(api, desk, pod, changes, want):
    assert await desk.kind(ungate(pod, **changes)) is want
    assert len(api.requests) == 1
    assert stored(api)["spec"]["schedulingGates"]


@pytest.mark.parametrize(("status", "want"), [(422, OutcomeKind.INVALID), (403, OutcomeKind.INVALID)])
async def test_what_the_server_will_never_take_is_refused_with_its_words(api, desk, pod, status, want):
    api.fail("PATCH", "/pods/p", Fault(status=status, message="spec: Forbidden: nodeSelector"))

    (outcome,) = await desk.does(ungate(pod))

    assert outcome.kind is want
    assert "nodeSelector" in outcome.cause


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault(status=429, headers={"Retry-After": "1"}), id="too many requests"),
        pytest.param(Fault(status=503), id="the API server starts"),
        pytest.param(Fault(status=500), id="not done, and said so"),
        pytest.param(Fault(cut=True), id="the connection breaks before it was done"),
        pytest.param(Fault(status=401), id="the token is stale"),
    ],
)
async def test_an_admission_that_was_not_done_is_tried_again(api, desk, pod, fault):
    api.fail("PATCH", "/pods/p", fault, times=3)

    assert await desk.kind(ungate(pod)) is OutcomeKind.DONE
    assert stored(api)["spec"]["schedulingGates"] == []


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault(apply=True, cut=True), id="the connection breaks after it was done"),
        pytest.param(Fault(apply=True, status=504), id="done, but a gateway gave up"),
    ],
)
async def test_an_admission_of_unknown_outcome_that_was_ours_is_done(api, desk, pod, fault):
    api.fail("PATCH", "/pods/p", fault)

    assert await desk.kind(ungate(pod)) is OutcomeKind.DONE
    assert [request.method for request in api.requests] == ["PATCH", "PATCH", "GET"]


async def test_an_admission_of_unknown_outcome_that_somebody_overtook_is_a_conflict(api, desk, pod):
    effect = ungate(pod)
    api.fail("PATCH", "/pods/p", Fault(cut=True))
    api.put(PODS, pod_json("p"))

    assert await desk.kind(effect) is OutcomeKind.CONFLICT


async def test_a_pod_that_finished_before_its_eviction_was_sent_is_left_alone(api, desk, pod):
    effect = evict(pod)
    desk.ended.add(effect.uid)

    assert await desk.kind(effect) is OutcomeKind.DONE
    assert api.requests == []


async def test_when_the_pod_cannot_be_read_back_it_is_tried_again(api, desk, pod):
    api.fail("PATCH", "/pods/p", Fault(apply=True, cut=True))
    api.fail("GET", "/pods/p", Fault(status=500))

    assert await desk.kind(ungate(pod)) is OutcomeKind.DONE
    assert [request.method for request in api.requests] == ["PATCH", "PATCH", "GET", "PATCH", "GET"]


async def test_after_its_deadline_an_admission_is_given_back(api, desk, pod):
    api.fail("PATCH", "/pods/p", Fault(status=503, message="starting"), times=1000)

    (outcome,) = await desk.does(ungate(pod))

    assert outcome.kind is OutcomeKind.EXPIRED
    assert "starting" in outcome.cause
    assert sum(desk.clock.slept) <= 60


async def test_at_the_deadline_an_unknown_outcome_is_read_back(api, desk, pod):
    api.fail("PATCH", "/pods/p", Fault(apply=True, status=500))
    api.fail("PATCH", "/pods/p", Fault(status=500), times=1000)

    assert await desk.kind(ungate(pod)) is OutcomeKind.DONE


async def test_a_pod_that_came_without_us_is_marked(api, desk, pod):
    pod["metadata"]["labels"] = {}
    meta = pod["metadata"]

    kind = await desk.kind(AdoptPod(meta["uid"], "research", "p", meta["resourceVersion"]))

    assert kind is OutcomeKind.DONE
    assert stored(api)["metadata"]["labels"] == {"cohort-extender.io/managed": "true"}
    assert stored(api)["metadata"]["annotations"]["cohort-extender.io/adopted"] == "true"


async def test_a_victim_is_evicted_with_its_uid(api, desk, pod):
    assert await desk.kind(evict(pod)) is OutcomeKind.DONE
    assert api.objects[PODS] == {}
    assert orjson.loads(api.bodies[0]) == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "p", "namespace": "research"},
        "deleteOptions": {"preconditions": {"uid": "uid-p"}},
    }


@pytest.mark.parametrize(
    "changes",
    [pytest.param({"name": "q"}, id="it is gone"), pytest.param({"uid": "x"}, id="it is another pod by now")],
)
async def test_a_victim_that_is_not_there_is_as_evicted_as_can_be(api, desk, pod, changes):
    assert await desk.kind(evict(pod, **changes)) is OutcomeKind.DONE
    assert "research/p" in api.objects[PODS]


async def test_a_disruption_budget_is_waited_for(api, desk, pod):
    fault = Fault(status=429, message="would violate the disruption budget", headers={"Retry-After": "10"})
    api.fail("POST", "/eviction", fault, times=3)

    assert await desk.kind(evict(pod)) is OutcomeKind.DONE
    assert api.count("POST", "/eviction") == 4
    assert all(10 <= slept <= 15 for slept in desk.clock.slept)


async def test_a_disruption_budget_is_not_waited_for_for_ever(api, desk, pod):
    api.fail("POST", "/eviction", Fault(status=429, message="would violate the disruption budget"), times=1000)

    (outcome,) = await desk.does(evict(pod))

    assert outcome.kind is OutcomeKind.EXPIRED
    assert "disruption budget" in outcome.cause
    assert api.count("POST", "/eviction") < 60


async def test_an_eviction_that_meets_a_write_of_another_is_tried_again(api, desk, pod):
    api.fail("POST", "/eviction", Fault(status=409, message="the object has been modified"))

    assert await desk.kind(evict(pod)) is OutcomeKind.DONE


async def test_nobody_but_the_leader_writes(api, desk, pod):
    desk.leads = False

    outcomes = await desk.does(ungate(pod), evict(pod), condition(pod))

    assert {outcome.kind for outcome in outcomes} == {OutcomeKind.FENCED}
    assert api.requests == []


async def test_who_stops_leading_in_the_middle_does_not_try_again(api, desk, pod):
    def lose(effect, outcome):
        desk.leads = False

    api.fail("PATCH", "/pods/p", Fault(status=503), times=1000)
    desk.writer._sleep = lambda seconds: _then(desk.clock.sleep(seconds), lambda: lose(None, None))

    assert await desk.kind(ungate(pod)) is OutcomeKind.FENCED
    assert len(api.requests) == 1


async def _then(first, action):
    await first
    action()


async def test_many_writes_are_in_flight_but_not_too_many(api):
    client = ApiClient(ClusterConfig(server=api.url))
    pods = [api.put(PODS, pod_json(f"p{i}")) for i in range(200)]
    async with desk_of(client) as desk:
        outcomes = await desk.does(*[ungate(pod) for pod in pods])
        await desk.writer.drain()

    await client.close()
    assert all(outcome.done for outcome in outcomes)
    assert desk.writer.counters.outcomes == {OutcomeKind.DONE: 200}
    assert len(desk.writer) == 0


async def test_few_writes_begin_in_one_round_of_the_loop(api, monkeypatch):
    client, begun, now = ApiClient(ClusterConfig(server=api.url)), [], 0
    carry_out = Writer._carry_out

    async def counted(writer, job):
        begun.append(now)
        await carry_out(writer, job)

    async def count():
        nonlocal now
        while True:
            await asyncio.sleep(0)
            now += 1

    monkeypatch.setattr(Writer, "_carry_out", counted)
    monkeypatch.setattr(Window, "size", lambda window, now_s: IN_FLIGHT_MAX)
    counting = asyncio.create_task(count())
    async with desk_of(client) as desk:
        await desk.does(*[ungate(api.put(PODS, pod_json(f"p{number}"))) for number in range(2 * IN_FLIGHT_MAX)])
    counting.cancel()
    await client.close()

    assert len(begun) == 2 * IN_FLIGHT_MAX
    assert max(begun.count(one) for one in begun) <= BEGUN_AT_ONCE_MAX


async def test_drain_waits_for_admissions_and_evictions(api, desk, pod):
    api.fail("PATCH", "/pods/p", Fault(status=503))
    desk.writer.submit(ungate(pod))
    before = list(desk.outcomes)

    await asyncio.wait_for(desk.writer.drain(), 5)

    assert before == []
    assert [outcome.kind for _, outcome in desk.outcomes] == [OutcomeKind.DONE]


@pytest.mark.parametrize(
    ("attempts", "error", "random", "want"),
    [
        (1, Unreachable("x"), 0.5, 0.5),
        (2, Unreachable("x"), 0.5, 1.0),
        (3, Unreachable("x"), 0.0, 1.0),
        (3, Unreachable("x"), 1.0, 3.0),
        (50, Unreachable("x"), 0.5, 15.0),
        (1, TooManyRequests("x", retry_after_s=10.0), 0.0, 10.0),
        (1, TooManyRequests("x", retry_after_s=10.0), 1.0, 15.0),
        (1, TooManyRequests("x", retry_after_s=9999.0), 0.0, 30.0),
        (6, TooManyRequests("x", retry_after_s=1.0), 0.5, 15.0),
    ],
)
def test_how_long_it_waits_between_attempts(attempts, error, random, want):
    effect = RecordEvent("u", "ns", "p", "r", "m")

    assert retry_in_s(Job(effect, "k", attempts=attempts), error, random) == want
