"""docs/reasons.md tells every reason and every error text there is."""

import ast
import re
from pathlib import Path

import pytest

from extender.model import reasons
from extender.model.reasons import ReasonCode

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reasons.md").read_text()
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("|")]
FILES = [
    "settings.py",
    "kube/decode_groups.py",
    "kube/decode_pods.py",
    "kube/decode_quota.py",
    "kube/requests.py",
    "kube/rules.py",
    "serve/jobs.py",
    "serve/review.py",
    "serve/wire.py",
]


def text_of(node: ast.expr) -> str:
    """A text as the page has it: what is filled in is an ellipsis. Empty, if it has no words of its own."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values):
            return "".join(part.value if isinstance(part, ast.Constant) else "…" for part in values)
        case ast.BinOp(left, ast.Add(), right):
            return text_of(left) + text_of(right)
    return ""


def texts_of(file: str) -> set[str]:
    """The texts of errors and of problems in a module."""
    found = set()
    for node in ast.walk(ast.parse((ROOT / "extender" / file).read_text())):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called == "UserError" or called.endswith(("problems.add", "problems.append")):
                found.add(text_of(node.args[-1]))
    return found - {""}


@pytest.mark.parametrize("code", list(ReasonCode))
def test_every_reason_has_its_row_with_its_sentence_its_meaning_and_its_cure(code: ReasonCode):
    (row,) = [row for row in ROWS if row[0] == f"`{code}`"]

    assert row[1] == reasons._SENTENCES[code]
    assert all(row[2:4])


def test_no_row_is_about_a_reason_that_does_not_exist():
    named = {match[1] for row in ROWS if (match := re.fullmatch(r"`([A-Z]\w+)`", row[0]))}

    assert named == {str(code) for code in ReasonCode}


@pytest.mark.parametrize("file", FILES)
def test_every_error_text_has_its_row_with_its_cure(file: str):
    """A new text in one of these modules needs a row in docs/reasons.md."""
    told = {row[0].strip("`") for row in ROWS if len(row) == 2 and row[1]}

    assert texts_of(file) - told == set()
