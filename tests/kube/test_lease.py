"""Leader election on a clock of our own: who leads, who may write, and who waits."""

import asyncio
import contextlib
import re

import orjson
import pytest

from extender.kube.lease import Leader
from extender.model.errors import Conflict, Gone, Unreachable, UserError
from tests.support.clock import FakeClock

MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


class Store:
    """One Lease, guarded by its version, on a network that can fail."""

    def __init__(self):
        self.lease = None
        self.version = 0
        self.down = False
        self.lose_answers = False
        self.timeouts = []
        self.writes = []
        self.hold = lambda: None

    async def get(self, path, *, timeout_s=None):
        self._reach(timeout_s)
        if self.lease is None:
            raise Gone("no lease", status=404)
        return orjson.dumps(self.lease)

    async def post(self, path, body, *, timeout_s=None):
        self._reach(timeout_s)
        if self.lease is not None:
            raise Conflict("exists", status=409)
        return self._store(orjson.loads(body))

    async def patch(self, path, body, *, kind, field_manager="", timeout_s=None):
        self._reach(timeout_s)
        asked = orjson.loads(body)
        if self.lease is None or asked["metadata"]["resourceVersion"] != str(self.version):
            raise Conflict("changed", status=409)
        return self._store({**self.lease, "spec": {**self.lease["spec"], **asked["spec"]}})

    def _reach(self, timeout_s):
        self.timeouts.append(timeout_s)
        if self.down:
            raise Unreachable("no route")

    def _store(self, lease):
        self.version += 1
        lease["metadata"]["resourceVersion"] = str(self.version)
        self.lease = lease
        self.writes.append(lease["spec"])
        self.hold()
        if self.lose_answers:
            raise Unreachable("no answer")
        return orjson.dumps(lease)

    @property
    def spec(self):
        return self.lease["spec"]


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def clock():
    return FakeClock()


def candidate(store, clock, name, told=None, **options):
    return Leader(
        store,
        identity=name,
        namespace="cohort-system",
        name="cohort-extender",
        on_change=(told if told is not None else []).append,
        clock=clock,
        wall_clock=lambda: 1772353815.0,
        sleep=clock.sleep,
        randomness=lambda: 0.5,
        **options,
    )


async def step(*leaders):
    """One attempt of each, in order."""
    for leader in leaders:
        await leader._step()
        leader._announce()


async def test_the_first_one_creates_the_lease_and_leads(store, clock):
    told = []
    one = candidate(store, clock, "one", told)

    await step(one)

    assert one.is_leader()
    assert told == [True]
    assert store.spec["holderIdentity"] == "one"
    assert store.spec["leaseDurationSeconds"] == 15
    assert store.spec["leaseTransitions"] == 0
    assert MICRO_TIME.fullmatch(store.spec["renewTime"])
    assert store.spec["renewTime"] == "2026-03-01T08:30:15.000000Z"  # six digits also where all are noughts


async def test_the_second_one_waits_while_the_first_renews(store, clock):
    one, two = candidate(store, clock, "one"), candidate(store, clock, "two")
    for _ in range(30):
        await step(one, two)
        clock.forward(2.2)

    assert (one.is_leader(), two.is_leader(), two.holder) == (True, False, "one")


async def test_a_leader_that_is_gone_is_followed_after_the_leases_duration(store, clock):
    one, two = candidate(store, clock, "one"), candidate(store, clock, "two")
    await step(one, two)
    led = []
    for _ in range(9):
        clock.forward(2.0)
        await step(two)
        led.append(two.is_leader())

    assert led == [*[False] * 7, True, True]  # 15 s after it last saw the record change
    assert store.spec["leaseTransitions"] == 1
    assert two.transitions == 1


async def test_nobody_ever_leads_beside_another(store, clock):
    one, two = candidate(store, clock, "one"), candidate(store, clock, "two")
    for turn in range(200):
        store.down = turn % 37 > 20
        if turn % 13 < 7:
            await step(one)
        await step(two)
        clock.forward(0.7)

        assert not (one.is_leader() and two.is_leader())


async def test_a_paused_leader_finds_its_fence_closed_at_once(store, clock):
    told = []
    one, two = candidate(store, clock, "one", told), candidate(store, clock, "two")
    await step(one, two)
    clock.forward(60)  # SIGSTOP; nothing of ours ran

    assert not one.is_leader()
    await step(two)
    await step(one)

    assert (one.is_leader(), two.is_leader()) == (False, True)
    assert told == [True, False]


async def test_a_leader_paused_in_the_middle_of_a_renewal_does_not_lead(store, clock):
    one = candidate(store, clock, "one")
    await step(one)
    clock.forward(2)
    store.hold = lambda: clock.forward(30)  # the write was done, the answer is read half a minute later

    await step(one)

    assert not one.is_leader()


async def test_the_fence_counts_from_the_start_of_a_renewal(store, clock):
    one = candidate(store, clock, "one")
    store.hold = lambda: clock.forward(4)
    await step(one)
    clock.forward(5.9)
    before = one.is_leader()
    clock.forward(0.2)

    assert (before, one.is_leader()) == (True, False)


async def test_a_leader_that_cannot_renew_gives_up_in_time(store, clock):
    told = []
    one = candidate(store, clock, "one", told)
    await step(one)
    store.down = True
    led = []
    for _ in range(6):
        clock.forward(2)
        await step(one)
        led.append(one.is_leader())

    assert led == [True, True, True, True, False, False]
    assert told == [True, False]
    assert one.problem == "no route"


async def test_no_request_outlives_the_right_to_lead(store, clock):
    one = candidate(store, clock, "one")
    await step(one)
    store.down = True
    for _ in range(4):
        clock.forward(2)
        await step(one)

    assert store.timeouts == [5.0, 5.0, 5.0, 5.0, 4.0, 2.0]


async def test_a_renewal_whose_answer_is_lost_is_noticed_as_ours(store, clock):
    one = candidate(store, clock, "one")
    await step(one)
    store.lose_answers = True
    clock.forward(2)
    await step(one)
    store.lose_answers = False
    clock.forward(2)
    await step(one)

    assert one.is_leader()
    assert store.spec["leaseTransitions"] == 0


async def test_somebody_else_took_it_by_hand(store, clock):
    told = []
    one = candidate(store, clock, "one", told)
    await step(one)
    store.version += 1
    store.lease["metadata"]["resourceVersion"] = str(store.version)
    store.lease["spec"]["holderIdentity"] = "admin"

    await step(one)

    assert (one.is_leader(), one.holder, told) == (False, "admin", [True, False])


async def test_two_that_start_together_do_not_both_lead(store, clock):
    one, two = candidate(store, clock, "one"), candidate(store, clock, "two")

    await asyncio.gather(one._step(), two._step())

    assert sorted([one.is_leader(), two.is_leader()]) == [False, True]


async def test_labels_and_fields_of_others_stay(store, clock):
    store.lease = {
        "metadata": {"name": "cohort-extender", "resourceVersion": "0", "labels": {"a": "b"}},
        "spec": {"holderIdentity": "", "strategy": "OldestEmulationVersion"},
    }
    one = candidate(store, clock, "one")

    await step(one)

    assert one.is_leader()
    assert store.lease["metadata"]["labels"] == {"a": "b"}
    assert store.spec["strategy"] == "OldestEmulationVersion"


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(UserError("forbidden", status=403), id="not allowed"),
        pytest.param(Unreachable("no route"), id="unreachable"),
    ],
)
async def test_a_failure_to_read_is_told_and_tried_again(store, clock, error):
    one = candidate(store, clock, "one")
    real = store.get

    async def fails(path, *, timeout_s=None):
        raise error

    store.get = fails
    await step(one)
    problem = one.problem
    store.get = real
    await step(one)

    assert problem == str(error)
    assert (one.is_leader(), one.problem) == (True, "")


async def test_a_lease_that_cannot_be_read_does_not_stop_us(store, clock):
    one = candidate(store, clock, "one")
    store.lease = {"metadata": [], "spec": 3}
    await step(one)
    problem = one.problem
    store.lease = None
    await step(one)

    assert "cannot be read" in problem
    assert one.is_leader()


async def test_a_wall_clock_that_jumps_changes_nothing(store, clock):
    one, two = candidate(store, clock, "one"), candidate(store, clock, "two")
    for jump in (0.0, 1e6, -1e6):
        one._wall_clock = two._wall_clock = lambda jump=jump: 1772353815.0 + jump
        await step(one, two)
        clock.forward(2)

    assert (one.is_leader(), two.is_leader()) == (True, False)


async def run_until_led(leader):
    task = asyncio.create_task(leader.run())
    while not leader.is_leader():  # noqa: ASYNC110 - the fake clock moves by itself
        await asyncio.sleep(0)
    return task


async def end(task):
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_the_lease_is_released_at_the_end_and_the_next_need_not_wait(store, clock):
    told = []
    one, two = candidate(store, clock, "one", told), candidate(store, clock, "two")
    task = await run_until_led(one)
    await step(two)
    await end(task)
    await one.release()

    assert (store.spec["holderIdentity"], store.spec["leaseDurationSeconds"]) == ("", 1)
    assert (one.is_leader(), told) == (False, [True, False])

    await step(two)

    assert two.is_leader()
    assert (store.spec["leaseDurationSeconds"], store.spec["leaseTransitions"]) == (15, 1)


async def test_a_follower_releases_nothing(store, clock):
    one, two = candidate(store, clock, "one"), candidate(store, clock, "two")
    await step(one)
    task = asyncio.create_task(two.run())
    await asyncio.sleep(0)
    await end(task)
    await two.release()

    assert store.spec["holderIdentity"] == "one"


async def test_a_release_that_fails_ends_all_the_same(store, clock):
    one = candidate(store, clock, "one")
    task = await run_until_led(one)
    store.down = True
    await end(task)
    await one.release()

    assert not one.is_leader()
    assert one.problem == "the lease was not released: no route"


async def test_a_leader_that_ends_without_a_release_keeps_the_lease_until_it_runs_out(store, clock):
    one, two = candidate(store, clock, "one"), candidate(store, clock, "two")
    task = await run_until_led(one)
    await end(task)  # a write of it may still be on its way
    led = []
    for _ in range(9):
        await step(two)
        led.append(two.is_leader())
        clock.forward(2.0)

    assert led == [*[False] * 8, True]


async def test_the_end_of_a_term_is_told_when_it_comes_and_not_at_the_next_attempt(store, clock):
    told = []
    one = Leader(
        store,
        identity="one",
        namespace="cohort-system",
        name="cohort-extender",
        on_change=lambda leads: told.append((leads, clock())),
        clock=clock,
        wall_clock=lambda: 1772353815.0,
        sleep=clock.sleep,
        randomness=lambda: 0.5,
    )
    began_s = clock()
    task = await run_until_led(one)
    store.down = True
    while len(told) < 2:  # noqa: ASYNC110 - the fake clock moves by itself
        await asyncio.sleep(0)
    await end(task)

    assert told == [(True, began_s), (False, pytest.approx(began_s + 10))]


async def test_a_term_that_ran_out_during_a_renewal_ends_before_the_next_begins(store, clock):
    told = []
    one = candidate(store, clock, "one", told)
    await step(one)
    clock.forward(9)
    store.version += 1  # somebody labels the lease: the renewal meets a conflict, and is done again after a look
    store.lease["metadata"]["resourceVersion"] = str(store.version)
    real = store.get

    async def slowly(path, *, timeout_s=None):
        clock.forward(3)
        return await real(path, timeout_s=timeout_s)

    store.get = slowly
    await step(one)

    assert one.is_leader()
    assert told == [True, False, True]


async def test_a_lease_that_is_deleted_is_written_anew_by_its_holder_alone(store, clock):
    told = []
    one, two = candidate(store, clock, "one", told), candidate(store, clock, "two")
    await step(one, two)
    store.lease = None
    clock.forward(1)
    await step(two)
    taken = two.is_leader()
    await step(one)

    assert not taken
    assert one.is_leader()
    assert told == [True]
    assert store.spec["holderIdentity"] == "one"


async def test_a_lease_that_is_deleted_and_not_written_anew_is_taken_when_it_would_have_run_out(store, clock):
    one, two = candidate(store, clock, "one"), candidate(store, clock, "two")
    await step(one, two)
    store.lease = None
    led = []
    for _ in range(9):
        clock.forward(2.0)
        await step(two)
        led.append(two.is_leader())

    assert led == [*[False] * 7, True, True]


async def test_attempts_are_spread(store, clock):
    one = candidate(store, clock, "one")
    task = await run_until_led(one)
    await end(task)

    assert clock.slept[0] == pytest.approx(2.2)
