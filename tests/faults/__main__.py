"""What FAULTS_REPORT=REPORT has collected as the table of docs/faults.md.

``python -m tests.faults REPORT`` prints the table of these runs alone, ``--onto docs/faults.md`` puts them into the one
that stands there: the worse of two numbers stays, and what does not hold always does.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from tests.faults.breaks import BREAKS
from tests.faults.scenes import SCENES, Step

Line = dict[str, Any]
NOT_RUN = "not run"
HEAD = "| fault |"


def cell(lines: list[Line], before: str = NOT_RUN) -> str:
    """What was seen at one step of one scene: seconds from the fault to the last decision, or what did not hold.

    *before*: what runs that are not among *lines* have shown.
    """
    if not lines:
        return before
    wrong = [text for line in lines for text in line["violations"]]
    if before != NOT_RUN and not before.isdecimal():
        wrong.insert(0, before)
    if wrong:
        return "; ".join(wrong)
    seconds = [0.0, *(line["decided_s"] for line in lines), *([float(before)] if before.isdecimal() else [])]
    return f"{max(seconds):.0f}"


def table(lines: list[Line], before: dict[str, list[str]] | None = None) -> str:
    """One row a fault, one column a scene and step."""
    steps = [(scene, step) for scene in SCENES for step in Step]
    heads = [f"{scene} {step.name.lower()}" for scene, step in steps]
    rows = [f"{HEAD} {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for fault in BREAKS:
        known = (before or {}).get(fault, [NOT_RUN] * len(steps))
        cells = [
            cell(
                [line for line in lines if (line["fault"], line["scene"], line["step"]) == (fault, scene, step.value)],
                old,
            )
            for (scene, step), old in zip(steps, known, strict=True)
        ]
        rows.append(f"| {fault} | {' | '.join(cells)} |")
    return "\n".join(rows)


def cells_of(page: str) -> dict[str, list[str]]:
    """The cells of the table in *page*, by fault."""
    found: dict[str, list[str]] = {}
    for row in table_of(page).splitlines()[2:]:
        fault, *cells = (part.strip() for part in row.strip("|").split("|"))
        found[fault] = cells
    return found


def table_of(page: str) -> str:
    """The table in *page* as it stands there."""
    _, head, rest = page.partition(HEAD)
    return head + rest.split("\n\n", 1)[0]


def onto(page: str, lines: list[Line]) -> str:
    """*page* with *lines* taken into its table."""
    return page.replace(table_of(page), table(lines, cells_of(page)))


def main() -> None:
    """Print the table, or put it into a page."""
    options = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    options.add_argument("report", type=Path)
    options.add_argument("--onto", type=Path, help="the page whose table is to take the runs in")
    asked = options.parse_args()
    lines = [json.loads(line) for line in asked.report.read_text().splitlines()]
    if asked.onto is None:
        print(table(lines))
    else:
        asked.onto.write_text(onto(asked.onto.read_text(), lines))


if __name__ == "__main__":
    main()
