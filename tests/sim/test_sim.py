"""Stories: thirty in every test run, thousands by ``make sim``. And stories of a system that is broken on purpose."""

from collections.abc import Callable

import pytest

from extender.engine.engine import Engine
from extender.model.effects import Effect, Evict
from extender.model.events import EngineEvent, WorkloadGone, WorkloadSeen
from extender.pods.books import Books
from tests.sim.__main__ import main
from tests.sim.quiet import quiet
from tests.sim.replica import Replica, Witness
from tests.sim.story import run

SEEDS = range(25)
STEPS = 120
MUTANT_SEEDS = 60


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_story_holds(seed: int) -> None:
    with quiet():
        story = run(seed, steps=STEPS)

    assert story.faults is False


async def test_stories_exercise_what_they_are_for() -> None:
    """A simulator in which nobody is ever evicted, refused or late would prove nothing."""
    told: list[str] = []
    with quiet():
        for seed in range(8):
            run(seed, steps=STEPS, tell=told.append)
    for what in (" admits ", " evicts ", " is refused ", " loses the lease", " restarts", "stopPolicy", "by hand"):
        assert any(what in line for line in told), f"no story tells that somebody{what}"


async def test_a_story_is_the_same_every_time() -> None:
    told: list[list[str]] = [[], []]
    with quiet():
        for lines in told:
            run(3, steps=60, tell=lines.append)

    assert told[0] == told[1]


def test_a_failing_seed_prints_the_command_that_replays_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.sim.checks.groups_are_whole", _fail)

    assert main(["--seeds", "1", "--start", "5", "--steps", "3"]) == 1
    assert "python -m tests.sim --seed 5 --steps 3" in capsys.readouterr().out


def _fail(*_: object) -> None:
    raise AssertionError("on purpose")


# --- mutants: each breaks one rule, and some story must notice ---


class DeafToRefusals(Witness):
    """Believes that every write succeeds."""

    def refused(self, effect: Effect, cause: str) -> None:
        """Does not listen."""


class EvictsForNothing(Witness):
    """Tells every victim to stay."""

    def _evict(self, evict: Evict) -> None:
        self.on_evict(evict)


class Replicas:
    """Replicas with something replaced."""

    class WithDeafDriver(Replica):
        """See ``DeafToRefusals``."""

        driver_type = DeafToRefusals

    class WithKindDriver(Replica):
        """See ``EvictsForNothing``."""

        driver_type = EvictsForNothing


def forgetful_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that forgets a charge as soon as the admission is confirmed."""
    apply = Engine.apply

    def forget(self: Engine, event: EngineEvent) -> None:
        apply(self, event)
        if isinstance(event, WorkloadSeen) and event.workload.admission and event.workload.uid[-1] in "37":
            apply(self, WorkloadGone(event.workload.uid))

    monkeypatch.setattr(Engine, "apply", forget)


def hasty_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that gives away the room of victims as soon as they begin to leave."""
    apply = Engine.apply

    def hurry(self: Engine, event: EngineEvent) -> None:
        apply(self, event)
        if isinstance(event, WorkloadSeen) and event.workload.evicted:
            apply(self, WorkloadGone(event.workload.uid))

    monkeypatch.setattr(Engine, "apply", hurry)


def half_a_gang(monkeypatch: pytest.MonkeyPatch) -> None:
    """Books that write the admission of the first member of a group only, and never finish it."""
    admit = Books.admit
    monkeypatch.setattr(Books, "admit", lambda self, act: admit(self, act)[:1])
    monkeypatch.setattr(Books, "finish", lambda _: [])


def unguarded_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter that lets pods without an admission pass."""
    monkeypatch.setattr("extender.pods.placement.Placement.concerns", lambda *_: False)


def nothing(_: pytest.MonkeyPatch) -> None:
    """No patch."""


@pytest.mark.parametrize(
    ("make", "patch"),
    [
        pytest.param(Replicas.WithDeafDriver, nothing, id="a driver that ignores refusals"),
        pytest.param(Replicas.WithKindDriver, nothing, id="a driver that evicts nobody"),
        pytest.param(Replica, forgetful_engine, id="an engine that forgets a charge"),
        pytest.param(Replica, hasty_engine, id="an engine that gives away the room of victims"),
        pytest.param(Replica, half_a_gang, id="books that start half of a group"),
        pytest.param(Replica, unguarded_filter, id="a filter that lets everybody pass"),
    ],
)
async def test_a_mutant_is_noticed(
    make: type[Replica], patch: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    patch(monkeypatch)
    noticed = False
    with quiet():
        for seed in range(MUTANT_SEEDS):
            try:
                run(seed, steps=STEPS, make=make)
            except AssertionError:
                noticed = True
                break

    assert noticed
