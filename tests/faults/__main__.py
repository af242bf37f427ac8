"""``python -m tests.faults REPORT`` prints the table of docs/faults.md from what FAULTS_REPORT=REPORT has collected."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.faults.breaks import BREAKS
from tests.faults.scenes import SCENES, Step

Line = dict[str, Any]


def cell(lines: list[Line]) -> str:
    """What was seen at one step of one scene: seconds from the fault to the last decision, or what did not hold."""
    if not lines:
        return "not run"
    wrong = [text for line in lines for text in line["violations"]]
    if wrong:
        return "; ".join(wrong)
    return f"{max(0.0, *(line['decided_s'] for line in lines)):.0f}"


def table(lines: list[Line]) -> str:
    """One row a fault, one column a scene and step."""
    steps = [(scene, step) for scene in SCENES for step in Step]
    heads = [f"{scene} {step.name.lower()}" for scene, step in steps]
    rows = [f"| fault | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for fault in BREAKS:
        cells = [
            cell([line for line in lines if (line["fault"], line["scene"], line["step"]) == (fault, scene, step.value)])
            for scene, step in steps
        ]
        rows.append(f"| {fault} | {' | '.join(cells)} |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(table([json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]))
