"""Every fault at every step of an admission, an eviction and a group's way in (docs/faults.md has what was seen)."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.auditor import Auditor
from tests.faults.breaks import BREAKS
from tests.faults.lab import LEFT, RIGHT, TOTAL, Lab
from tests.faults.scenes import SCENES, Step

pytestmark = [pytest.mark.rig, pytest.mark.timeout(420)]

QUIET_S = 3.0
"""How long nothing may happen any more at the end."""
FAST = {
    ("leader killed", "admission", Step.UNANSWERED),
    ("leader killed", "eviction", Step.UNSEEN),
    ("leader killed", "gang", Step.DECIDED),
    ("leader terminated", "gang", Step.DECIDED),
    ("API server killed 5 s", "admission", Step.UNSEEN),
    ("API server killed 5 s", "eviction", Step.DECIDED),
    ("connections cut", "admission", Step.UNANSWERED),
    ("connections cut", "eviction", Step.UNANSWERED),
}
"""What runs without --slow: the commonest faults, each kind of write and each step at least once."""


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
    healed_s = time.monotonic()
    broken_s = healed_s - began_s

    await played.ends()
    recovered_s = time.monotonic() - healed_s
    before = dict(auditor.admitted), dict(auditor.victims)
    await asyncio.sleep(QUIET_S)

    _report(fault, scene, step, broken_s=broken_s, healed_s=healed_s, recovered_s=recovered_s, auditor=auditor)
    assert auditor.violations == []
    assert auditor.peak == TOTAL
    assert (auditor.admitted, auditor.victims) == before
    assert auditor.halves(LEFT) + auditor.halves(RIGHT) == []


def _report(
    fault: str, scene: str, step: Step, *, broken_s: float, healed_s: float, recovered_s: float, auditor: Auditor
) -> None:
    """One line for the table, if somebody asks for it."""
    if "FAULTS_REPORT" in os.environ:
        line = {
            "fault": fault,
            "scene": scene,
            "step": step.value,
            "broken_s": round(broken_s, 1),
            "recovered_s": round(recovered_s, 1),
            "decided_s": round(auditor.decided_s - healed_s, 1),
            "placed_s": round(auditor.placed_s - healed_s, 1),
            "peak": auditor.peak,
            "admitted": len(auditor.admitted),
            "victims": len(auditor.victims),
            "scheduler_restarts": auditor.lab.scheduler_restarts,
            "violations": auditor.violations,
        }
        with Path(os.environ["FAULTS_REPORT"]).open("a") as file:
            file.write(json.dumps(line) + "\n")
