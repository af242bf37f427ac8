"""Every fault at every step of an admission, an eviction and a group's way in (docs/faults.md has what was seen)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.auditor import Auditor
from tests.faults.breaks import BREAKS
from tests.faults.lab import LEFT, RIGHT, TOTAL, Lab
from tests.faults.proxy import until
from tests.faults.scenes import SCENES, Step

pytestmark = [pytest.mark.rig, pytest.mark.timeout(420)]

QUIET_S = 3.0
"""How long nothing may happen any more at the end."""
TOLD_S_MAX = 45.0
"""Conditions are paced."""
FAST = {
    ("leader killed", "gang", Step.DECIDED),
    ("leader terminated", "admission", Step.DECIDED),
    ("both replicas killed", "eviction", Step.UNANSWERED),
    ("connections cut", "admission", Step.UNANSWERED),
}
"""What runs without --slow: the commonest faults, and pods, groups and evictions among what they meet."""


def matrix() -> Iterator[object]:
    """Every fault with every scene and step."""
    for fault in BREAKS:
        for scene in SCENES:
            for step in Step:
                marks = [] if (fault, scene, step) in FAST else [pytest.mark.slow]
                yield pytest.param(fault, scene, step, id=f"{fault}, {scene}, {step.value}", marks=marks)


@pytest.mark.parametrize(("fault", "scene", "step"), list(matrix()))
async def test_a_fault_at_a_step_changes_nothing_in_the_end(
    faulty: Lab, auditor: Auditor, fault: str, scene: str, step: Step
):
    played = SCENES[scene](faulty, auditor)
    leader = await faulty.leader()
    hook = await played.caught_at(step, leader)
    began_s = time.monotonic()
    await BREAKS[fault](faulty, leader, hook)
    faulty.proxy(leader).free_watches()
    broken_s = time.monotonic() - began_s

    await played.ends()
    ended_s = time.monotonic()
    before = dict(auditor.admitted), dict(auditor.victims)
    await asyncio.sleep(QUIET_S)
    with contextlib.suppress(TimeoutError):
        await until(_all_told(auditor), "every pod that waits says why, and no other does", timeout_s=TOLD_S_MAX)

    assert auditor.untold() == []
    _report(
        auditor,
        fault=fault,
        scene=scene,
        step=step.value,
        broken_s=round(broken_s, 1),
        decided_s=round(played.decided_s - began_s, 1),
        ended_s=round(ended_s - began_s, 1),
    )
    assert auditor.violations == []
    assert auditor.peak == TOTAL
    assert (auditor.admitted, auditor.victims) == before
    assert auditor.halves(LEFT) + auditor.halves(RIGHT) == []


def _all_told(auditor: Auditor) -> Callable[[], Awaitable[bool]]:
    async def all_told() -> bool:
        return not auditor.untold()

    return all_told


def _report(auditor: Auditor, **what: str | float) -> None:
    """One line for the table, if somebody asks for it. Seconds count from the fault."""
    if "FAULTS_REPORT" in os.environ:
        seen = {
            "peak": auditor.peak,
            "admitted": len(auditor.admitted),
            "victims": len(auditor.victims),
            "scheduler_restarts": auditor.lab.scheduler_restarts,
            "violations": auditor.violations,
        }
        with Path(os.environ["FAULTS_REPORT"]).open("a") as file:
            file.write(json.dumps(what | seen) + "\n")
