"""The table of docs/faults.md takes runs in, and forgets none."""

from pathlib import Path

import pytest

from tests.faults.__main__ import cell, cells_of, onto, table_of
from tests.faults.breaks import BREAKS

PAGE = (Path(__file__).parents[2] / "docs" / "faults.md").read_text()


def run(decided_s: float, *violations: str) -> dict:
    return {
        "fault": "leader killed",
        "scene": "admission",
        "step": "decided, not written",
        "decided_s": decided_s,
        "violations": list(violations),
    }


@pytest.mark.parametrize(
    ("lines", "before", "want"),
    [
        pytest.param([], "not run", "not run", id="nothing is known"),
        pytest.param([], "14", "14", id="what was known stays"),
        pytest.param([run(2.6), run(1.0)], "not run", "3", id="the worst of several"),
        pytest.param([run(2.6)], "14", "14", id="a better run changes nothing"),
        pytest.param([run(20.0)], "14", "20", id="a worse one does"),
        pytest.param([run(-0.1)], "not run", "0", id="decided before the fault"),
        pytest.param([run(2.6, "9 held of 8")], "14", "9 held of 8", id="what does not hold is told"),
        pytest.param([run(2.6)], "9 held of 8", "9 held of 8", id="and is not forgotten"),
    ],
)
def test_a_cell(lines, before, want):
    assert cell(lines, before) == want


def test_the_page_has_a_row_for_every_fault():
    assert list(cells_of(PAGE)) == list(BREAKS)
    assert {len(cells) for cells in cells_of(PAGE).values()} == {12}


def test_taking_no_runs_in_changes_nothing():
    assert onto(PAGE, []) == PAGE


def test_taking_a_run_in_changes_its_cell():
    changed = onto(PAGE, [run(999.0)])

    assert cells_of(changed)["leader killed"] == ["999", *cells_of(PAGE)["leader killed"][1:]]
    assert changed.replace(table_of(changed), "") == PAGE.replace(table_of(PAGE), "")
