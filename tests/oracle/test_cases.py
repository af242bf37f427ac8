"""The cases that the repository keeps, and those of the reference where they are at hand (``COHORT_ORACLE``)."""

import os
from pathlib import Path

import pytest

from tests.oracle.__main__ import verdict
from tests.oracle.drive import POLICIES
from tests.oracle.files import case_files, read_cases

KEPT = Path(__file__).with_name("cases")
SIBLING = Path(__file__).parents[3] / "shared" / "oracle"
RECORDED = Path(os.environ.get("COHORT_ORACLE") or SIBLING) / "cases"
FILES = [*case_files([KEPT]), *(case_files([RECORDED]) if RECORDED.is_dir() else ())]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "path", FILES, ids=lambda path: path.name.split(".")[0] + ("" if path.parent == KEPT else "-recorded")
)
def test_decisions_are_as_recorded(path: Path, policy: str):
    wrong = {}
    for case in read_cases([path]):
        right, found = verdict(case, policy)
        if not right:
            wrong[case["scenario"]["name"]] = found

    assert wrong == {}
