"""What people are told: statuses, gauges, events and the sentence of an eviction."""

import pytest

from extender.model.amounts import UNLIMITED
from extender.model.effects import SetQueueStatus
from extender.model.events import ClusterQueueGone, LocalQueueSeen
from extender.model.names import ClusterQueueName, LocalQueueName
from extender.model.quota import LocalQueue, StopPolicy
from extender.pods.conditions import FIRST_MS
from tests.app.desk import LAB, Desk, conditions, evictions, of, statuses, told

SECOND = 1_000


def shown(at: Desk) -> dict:
    """All statuses that are written within three rounds."""
    found: dict = {}
    for _ in range(3):
        found.update(statuses(at.turn(after_ms=SECOND)))
    return found


def why_active(status: dict) -> tuple[str, str]:
    (condition,) = status["conditions"]
    return condition["status"], condition["reason"]


async def test_a_queue_shows_what_it_uses_and_borrows():
    at = Desk(fair=True)
    at.cohort("all")
    at.queue("main", 1, cohort="all")
    at.queue("other", 3, cohort="all")
    at.submit("a", "b")
    at.run()
    at.submit("c", requests=(("nvidia.com/gpu", 9),))

    found = shown(at)
    status, local = found["ClusterQueue", "main-cq"], found["LocalQueue", "main"]
    used = {"name": "nvidia.com/gpu", "total": "2"}
    assert status["flavorsUsage"] == [{"name": "any", "resources": [{**used, "borrowed": "1"}]}]
    assert local["flavorsUsage"] == [{"name": "any", "resources": [used]}]
    assert [status[key] for key in ("pendingWorkloads", "reservingWorkloads", "admittedWorkloads")] == [1, 2, 2]
    assert [local[key] for key in ("pendingWorkloads", "reservingWorkloads", "admittedWorkloads")] == [1, 2, 2]
    assert status["fairSharing"] == {"weightedShare": 250}
    assert found["Cohort", "all"] == {"fairSharing": {"weightedShare": 0}}
    assert at.meter.gauges["usage", "main-cq", "any", "nvidia.com/gpu"] == 2
    assert at.meter.gauges["pending", "main-cq"] == 1
    assert at.meter.gauges["share", "main-cq"] == 250


async def test_what_is_used_of_an_endless_quota_is_a_quantity_however_much_it_is():
    at = Desk()
    at.queue("main", UNLIMITED)
    for name in ("a", "b"):
        at.submit(name, requests=(("nvidia.com/gpu", UNLIMITED - 1),))

    (flavor,) = shown(at)["ClusterQueue", "main-cq"]["flavorsUsage"]
    assert flavor["resources"] == [{"name": "nvidia.com/gpu", "total": str(2**63 - 2), "borrowed": "0"}]


async def test_what_has_not_changed_is_not_written():
    at = Desk()
    at.queue()
    shown(at)

    assert shown(at) == {}


async def test_a_status_that_was_not_written_is_written_again_with_its_time():
    at = Desk()
    at.queue()
    first = next(effect for effect in of(at.turn(after_ms=SECOND) + at.turn(after_ms=SECOND), SetQueueStatus))
    at.driver.refused(first, "expired: gave up")
    again = shown(at)[first.kind, first.name]

    assert statuses([first])[first.kind, first.name] == again


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({}, ("True", "Ready"), id="active"),
        pytest.param({"stop_policy": StopPolicy.HOLD}, ("False", "Stopped"), id="stopped"),
        pytest.param({"deleting": True}, ("False", "Terminating"), id="being deleted"),
        pytest.param({"misconfigured": "spec.cohort: no"}, ("False", "Unknown"), id="wrong"),
        pytest.param({"admission_checks": ("check",)}, ("False", "AdmissionCheckNotFound"), id="a check"),
    ],
)
async def test_why_a_cluster_queue_is_active_or_not(spec, want):
    at = Desk()
    at.queue(**spec)

    assert why_active(shown(at)["ClusterQueue", "main-cq"]) == want


@pytest.mark.parametrize(
    ("target", "stop", "want"),
    [
        pytest.param("main-cq", StopPolicy.NONE, ("True", "Ready"), id="active"),
        pytest.param("none-cq", StopPolicy.NONE, ("False", "ClusterQueueDoesNotExist"), id="no ClusterQueue"),
        pytest.param("main-cq", StopPolicy.HOLD, ("False", "Stopped"), id="stopped"),
        pytest.param("held-cq", StopPolicy.NONE, ("False", "ClusterQueueIsInactive"), id="behind a stopped one"),
    ],
)
async def test_why_a_local_queue_is_active_or_not(target, stop, want):
    at = Desk()
    at.queue()
    at.queue("held", stop_policy=StopPolicy.HOLD)
    at.take(LocalQueueSeen(LocalQueue(LAB, LocalQueueName("mine"), ClusterQueueName(target), stop_policy=stop)))
    at.submit("a", queue="mine", requests=(("nvidia.com/gpu", 9),))
    status = shown(at)["LocalQueue", "mine"]

    assert why_active(status) == want
    assert status["pendingWorkloads"] == (0 if want[1] == "Stopped" else 1)


async def test_gauges_go_with_their_queue_and_with_the_lease():
    at = Desk()
    at.queue()
    at.queue("other")
    shown(at)
    at.take(ClusterQueueGone(ClusterQueueName("other-cq")))
    shown(at)
    assert {key[1] for key in at.meter.gauges} == {"main-cq"}

    at.driver.lead(False)
    assert at.meter.gauges == {}


@pytest.mark.parametrize("fair", [False, True], ids=["classical", "fair sharing"])
async def test_an_eviction_names_the_preemptor_its_queue_the_rule_and_the_numbers(*, fair: bool):
    at = Desk(fair=fair)
    at.cohort("all")
    at.cohort("team", "all")
    at.queue("giver", 0, cohort="team")
    at.queue("taker", 0 if fair else 2, cohort="all")
    at.queue("lender", 2 if fair else 0, cohort="all")
    at.submit("a", "b", queue="giver")
    at.run()
    at.submit("urgent", queue="taker", priority=3)

    effects = at.turn()
    ((name, reason, message),) = evictions(effects)
    rule = "has the smaller fair share" if fair else "takes back quota that was lent"
    shares = "; weighted shares now: taker-cq 0 and team 1000" if fair else ""
    assert reason == ("InCohortFairSharing" if fair else "InCohortReclamation")
    assert message == (
        f"makes room for research/urgent (UID urgent), which {rule}: gives back 1 nvidia.com/gpu of any; "
        f"priority 3 against 0{shares}; preemptor path: /all/taker-cq; preemptee path: /all/team/giver-cq"
    )
    assert told(effects) == [(name, "Preempted", message)]
    assert at.meter.evictions == [("giver-cq", reason, "taker-cq")]


async def test_a_group_has_one_event_for_all_of_its_pods():
    at = Desk()
    at.queue()
    at.submit("a", "b", group="team", group_total=2)
    at.run()
    at.submit("urgent", priority=3)

    effects = at.turn()
    assert len(evictions(effects)) == 2
    ((name, reason, message),) = told(effects)
    assert (name, reason) == ("a", "Preempted")
    assert message.endswith("(and 1 more pods of it)")


async def test_who_needs_an_edit_is_warned_and_who_is_admitted_is_told():
    at = Desk()
    at.queue()
    at.submit("lost", queue="nowhere")
    at.submit("big", requests=(("nvidia.com/gpu", 2),))
    at.run()
    at.submit("next")

    assert conditions(at.turn()) == {}  # it may be in soon
    effects = at.turn(after_ms=FIRST_MS)
    assert told(effects) == []  # the lost one was told in the first turn
    reason, message = conditions(effects)["next"]
    assert reason == "QuotaUsed"
    at.change("next", admitted_reason=reason, admitted_condition=message)
    at.gone("big")
    assert at.run() == ["next"]
    effects = at.turn()
    want = "ClusterQueue main-cq holds 1 nvidia.com/gpu of any for it"
    assert conditions(effects) == {"next": ("Admitted", want)}
    assert told(effects) == [("next", "Admitted", want)]


@pytest.mark.parametrize(("arrived", "want"), [(False, ["p"]), (True, [])], ids=["lost", "written"])
async def test_a_term_begins_with_what_the_pods_show(*, arrived: bool, want: list[str]):
    at = Desk()
    at.queue("main", 0)
    at.submit("p")
    ((reason, message),) = conditions(at.turn()).values()
    if arrived:
        at.change("p", admitted_reason=reason, admitted_condition=message)
    at.driver.lead(False)
    at.driver.lead(True)

    assert list(conditions(at.turn())) == want


async def test_a_new_term_sets_right_what_the_last_one_left_behind():
    at = Desk()
    at.queue()
    at.submit("p", admitted_reason="QuotaUsed")
    at.run()
    at.driver.lead(False)
    at.driver.lead(True)

    assert conditions(at.turn())["p"][0] == "Admitted"


async def test_who_is_tried_again_and_again_is_given_his_reason_twice_a_second(monkeypatch: pytest.MonkeyPatch):
    at = Desk()
    at.queue("main", 1)
    at.submit("runs")
    at.run()
    at.submit("waits", requests=(("nvidia.com/gpu", 2),))
    at.turn()
    asked: list[str] = []
    answer = at.driver.engine.reason_of

    def counted(uid):
        asked.append(uid)
        return answer(uid)

    monkeypatch.setattr(at.driver.engine, "reason_of", counted)
    for number in range(100):
        at.queue("main", 1 + number % 2)  # each change has it tried once more
        at.turn(after_ms=20)

    assert 3 <= len(asked) <= 5
