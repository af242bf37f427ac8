"""Laws of histories: what is known decides, not the way by which it became known."""

import json
import os
import subprocess
import sys
from random import Random
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from extender.engine.engine import Engine
from extender.model.effects import Admit, EngineEffect
from extender.model.events import EngineEvent, WorkloadSeen
from extender.model.policy import Policy
from tests.laws.build import LAW, Asked, World, all_policies, asked, policies, workload, workloads, worlds
from tests.laws.drive import Lab
from tests.laws.fixed import fixed_facts


class Step(NamedTuple):
    """One thing that happens: somebody submits, the *nth* workload ends, victims leave, or a pass is run."""

    what: str
    wanted: Asked
    nth: int


steps = st.lists(
    st.builds(
        Step,
        st.sampled_from(("submit", "submit", "submit", "end", "leave", "decide", "decide")),
        asked,
        st.integers(0, 9),
    ),
    min_size=1,
    max_size=14,
)


def live(lab: Lab, history: list[Step], *, first: int = 0) -> None:
    """Let *history* happen."""
    for number, step in enumerate(history, start=first):
        if step.what == "submit":
            lab.see(workload(lab.world, number, step.wanted))
        elif step.what == "end" and lab.workloads:
            uids = sorted(lab.workloads)
            lab.gone(uids[step.nth % len(uids)])
        elif step.what == "leave" and lab.leaving:
            lab.gone(sorted(lab.leaving)[0])
        elif step.what == "decide":
            lab.decide()


def answers(engine: Engine, world: World) -> dict[str, object]:
    """Everything that can be asked about usage."""
    return {
        **{f"queue {queue.name}": engine.view(queue.name) for queue in world.queues},
        **{f"cohort {cohort.name}": engine.cohort_view(cohort.name) for cohort in world.cohorts},
    }


@LAW
@given(worlds(), all_policies, steps)
def test_usage_is_the_sum_of_what_runs_however_it_came_about(world: World, policy: Policy, history: list[Step]) -> None:
    lab = Lab(world, policy)
    live(lab, history)
    lab.decide()
    rebuilt = Lab(world, policy)
    rebuilt.apply(WorkloadSeen(one) for one in lab.workloads.values())
    rebuilt.engine.apply(world.facts()[0])

    assert list(lab.engine.check()) == []
    assert {uid: lab.engine.admission_of(uid) for uid in lab.workloads} == {
        uid: rebuilt.engine.admission_of(uid) for uid in lab.workloads
    }


@LAW
@given(worlds(), policies, steps)
def test_a_quiet_engine_rebuilt_from_a_list_has_nothing_to_decide(
    world: World, policy: Policy, history: list[Step]
) -> None:
    lab = Lab(world, policy)
    live(lab, history)
    for _ in range(50):
        lab.until_quiet()
        if not lab.leaving:
            break
        for uid in list(lab.leaving):
            lab.gone(uid)
    rebuilt = Lab(world, policy)
    for one in lab.workloads.values():
        rebuilt.see(one)

    assert rebuilt.decide() == ()
    assert answers(rebuilt.engine, world) == answers(lab.engine, world)


@LAW
@given(worlds(), all_policies, st.lists(asked, max_size=10), st.lists(asked, max_size=6), st.integers(0, 2**32))
def test_the_order_of_facts_of_the_same_time_changes_no_decision(
    world: World, policy: Policy, running: list[Asked], waiting: list[Asked], seed: int
) -> None:
    facts = facts_at_once(world, policy, running, waiting)
    shuffled = list(facts)
    Random(seed).shuffle(shuffled)

    assert decisions(policy, shuffled) == decisions(policy, facts)


def facts_at_once(world: World, policy: Policy, running: list[Asked], waiting: list[Asked]) -> list[EngineEvent]:
    """Quota, workloads that run (as an engine admitted them) and workloads that wait, told at once."""
    before = Lab(world, policy)
    for one in workloads(world, running):
        before.see(one)
    before.until_quiet()
    late = [workload(world, 100 + number, one) for number, one in enumerate(waiting)]
    return [*world.facts(), *(WorkloadSeen(one) for one in (*before.workloads.values(), *late))]


def decisions(policy: Policy, facts: list[EngineEvent]) -> tuple[list[EngineEffect], str]:
    """What an engine decides after *facts*, and its digest then."""
    engine = Engine(policy)
    for fact in facts:
        engine.apply(fact)
    decided: list[EngineEffect] = []
    for now_ms in range(50_000, 60_000, 1_000):
        decided += engine.run_pass(now_ms).effects
    return decided, str(engine.digest())


@LAW
@given(worlds(), all_policies, steps, steps)
def test_a_fork_and_its_origin_do_not_touch_each_other(
    world: World, policy: Policy, history: list[Step], future: list[Step]
) -> None:
    lab = Lab(world, policy)
    live(lab, history)
    digest, before = lab.engine.digest(), answers(lab.engine, world)
    other = Lab(world, policy)
    other.engine, other.workloads, other.leaving = lab.engine.fork(), dict(lab.workloads), dict(lab.leaving)
    other.now_ms = lab.now_ms

    assert other.engine.digest() == digest

    live(other, future, first=100)
    other.decide()

    assert lab.engine.digest() == digest
    assert answers(lab.engine, world) == before
    assert list(other.engine.check()) == []

    live(lab, future, first=100)
    lab.decide()

    assert lab.engine.digest() == other.engine.digest()


@LAW
@given(worlds(), all_policies, steps)
def test_the_same_history_gives_the_same_digest_and_another_fact_another(
    world: World, policy: Policy, history: list[Step]
) -> None:
    one, two = Lab(world, policy), Lab(world, policy)
    live(one, history)
    live(two, history)

    assert one.engine.digest() == two.engine.digest()

    two.see(workload(world, 999, Asked(0, 1, 0, 0, 0)))

    assert one.engine.digest() != two.engine.digest()


@LAW
@given(worlds(), all_policies, steps)
def test_to_be_told_twice_changes_nothing(world: World, policy: Policy, history: list[Step]) -> None:
    lab = Lab(world, policy)
    live(lab, history)
    lab.until_quiet()
    digest = lab.engine.digest()
    lab.apply(world.facts())
    lab.apply(WorkloadSeen(one) for one in lab.workloads.values())

    assert lab.engine.digest() == digest


def test_decisions_do_not_depend_on_the_hash_seed() -> None:
    """The same worlds in two processes that order their sets differently."""
    program = "import json; from tests.laws.test_history import fixed_worlds; print(json.dumps(fixed_worlds()))"
    told = []
    for seed in ("1", "2"):
        answer = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        told.append(json.loads(answer.stdout))

    assert told[0] == told[1]
    assert any(admitted for admitted, _ in told[0])


def fixed_worlds() -> list[tuple[int, str]]:
    """For 20 worlds of the simulator's kind: how many workloads are admitted, and the engine's digest."""
    found = []
    for seed in range(20):
        decided, digest = decisions(Policy(), fixed_facts(seed))
        found.append((sum(isinstance(effect, Admit) for effect in decided), digest))
    return found
