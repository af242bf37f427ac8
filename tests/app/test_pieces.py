"""Whatever is long takes turns: a piece in a round of the event loop, and never two pieces in one."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest

from extender import telemetry
from extender.engine.engine import Engine
from extender.model.policy import Policy
from extender.pods.books import Books
from extender.telemetry import BUSY_S, WATCHDOG_S, Watchdog
from extender.teller import AGAIN_MAX, EXPLAINED_MAX, STATUS_MS, Teller
from extender.turns import Turns
from tests.app.desk import Desk, Meter


class Rounds:
    """Counts the rounds of the loop."""

    def __init__(self) -> None:
        self.now = 0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.now += 1


@contextlib.asynccontextmanager
async def counted() -> AsyncIterator[Rounds]:
    rounds = Rounds()
    task = asyncio.create_task(rounds.run())
    await asyncio.sleep(0)
    yield rounds
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def pieces(turns: Turns, name: str, at: list[tuple[int, str]], rounds: Rounds, count: int = 3) -> None:
    for _ in range(count):
        async with turns:
            at.append((rounds.now, name))


async def test_no_round_has_two_pieces_whoever_they_are_of():
    at: list[tuple[int, str]] = []
    async with counted() as rounds:
        turns = Turns()
        await asyncio.gather(*(pieces(turns, name, at, rounds) for name in "abc"))

    assert len({now for now, _ in at}) == 9
    assert "".join(name for _, name in at) == "aabcabcbc"  # whoever comes again waits behind those that came before


async def test_who_is_cancelled_while_it_waits_does_not_keep_the_turn():
    at: list[tuple[int, str]] = []
    async with counted() as rounds:
        turns = Turns()
        waiting = []
        async with turns:
            waiting += [asyncio.create_task(pieces(turns, name, at, rounds, 1)) for name in "ab"]
            await asyncio.sleep(0)
            waiting[0].cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    assert [name for _, name in at] == ["b"]


async def test_who_is_cancelled_when_its_turn_has_come_passes_it_on():
    at: list[tuple[int, str]] = []
    async with counted() as rounds:
        turns = Turns()
        async with turns:
            waiting = [asyncio.create_task(pieces(turns, name, at, rounds, 1)) for name in "ab"]
            await asyncio.sleep(0)
        waiting[0].cancel()  # in the round before its own
        async with asyncio.timeout(5):
            await asyncio.gather(*waiting, return_exceptions=True)
            await pieces(turns, "c", at, rounds, 1)

    assert [name for _, name in at] == ["b", "c"]


async def test_who_is_alone_has_every_round():
    at: list[tuple[int, str]] = []
    async with counted() as rounds:
        await pieces(Turns(), "a", at, rounds, 5)

    assert [now - at[0][0] for now, _ in at] == [0, 1, 2, 3, 4]


# --- what people are told ---


async def test_each_reason_and_each_status_is_a_step():
    at = Desk()
    for number in range(3):
        at.queue(f"q{number}", 1)
    at.submit(*(f"p{number}" for number in range(EXPLAINED_MAX + 5)), queue="q0")
    teller = at.driver._teller

    assert len(list(teller.explain(at.now_ms))) == EXPLAINED_MAX
    assert len(list(teller.write_statuses(at.now_ms))) == 2  # of the queues in which something has changed
    assert len(list(teller.write_statuses(at.now_ms + STATUS_MS))) == 6  # of all, ClusterQueues and LocalQueues


def test_two_terms_that_end_in_a_row_are_forgotten_bit_by_bit():
    at = Desk()
    at.queue("main", 0)
    names = [f"p{number}" for number in range(AGAIN_MAX + 5)]
    at.submit(*names)
    teller = Teller(engine=Engine(Policy()), books=Books(), submit=at.effects.append, gauges=Meter())
    for name in names:
        teller._conditions.note(
            at.driver.books.workload_of(at.pods[name]), at.driver.engine.reason_of(at.pods[name].uid), 0
        )
    left = []
    teller.start_over()
    teller.start_over()
    for _ in range(4):
        left.append(sum(len(former._entries) for former in teller._former))
        teller.words(0)

    assert left == [AGAIN_MAX + 5, AGAIN_MAX + 5, 5, 0]
    assert teller._former == []


# --- the watchdog ---


class Machine:
    """Clocks of the test's own, which stand still unless something works or waits."""

    def __init__(self) -> None:
        self.worked_s = 0.0
        self.now_s = 0.0

    def work(self, seconds: float) -> None:
        self.worked_s += seconds
        self.now_s += seconds

    def clocks(self) -> SimpleNamespace:
        return SimpleNamespace(thread_time=lambda: self.worked_s, monotonic=lambda: self.now_s)


@pytest.fixture
async def machine(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Machine, Watchdog, list[float]]]:
    """A machine whose watchdog has just looked for the first time, and the pauses that it made since."""
    made, watchdog, pauses = Machine(), Watchdog(), list[float]()
    monkeypatch.setattr(telemetry, "time", made.clocks())
    sleep = asyncio.sleep

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        made.now_s += seconds
        await sleep(0)

    monkeypatch.setattr(telemetry, "asyncio", SimpleNamespace(sleep=pause))
    task = asyncio.create_task(watchdog.run())
    await sleep(0)
    yield made, watchdog, pauses
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_rounds_that_follow_one_another_do_not_add_up(machine):
    made, watchdog, pauses = machine
    pauses.clear()
    for _ in range(5):
        made.work(0.003)
        await asyncio.sleep(0)
    made.work(BUSY_S / 2)
    await asyncio.sleep(0)

    assert watchdog.held_s() == pytest.approx(0.003)
    assert pauses == [0, 0, 0, 0, 0, WATCHDOG_S]


async def test_a_long_round_is_told_in_full(machine):
    made, watchdog, _ = machine
    made.work(0.007)
    await asyncio.sleep(0)

    assert watchdog.held_s() == pytest.approx(0.007)


# --- libraries ---

LATE = """
import importlib, sys
from datetime import UTC, datetime
from extender.app import LOADED_LATE
from extender.certs.authority import covers, is_pair, issue, make_authority
for name in LOADED_LATE:
    importlib.import_module(name)
before = set(sys.modules)
pair = issue(make_authority(datetime.now(UTC)), ["a"], datetime.now(UTC))
assert is_pair(pair.certificate, pair.key) and covers(pair.certificate, ["a"])
"localhost".encode("idna")
print(sorted(set(sys.modules) - before))
"""


def test_nothing_is_imported_while_we_serve():
    said = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, check=True)

    assert said.stdout == "[]\n"
