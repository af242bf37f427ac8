"""docs/reasons.md tells every reason and every error text there is."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from extender.engine import places
from extender.kube import answers
from extender.model import reasons
from extender.model.effects import EvictionReason
from extender.model.reasons import ReasonCode
from extender.serve import guard

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "manifests"
PAGE = (ROOT / "docs" / "reasons.md").read_text()
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("|")]


def messages(node: object) -> Iterator[str]:
    """The messages of rules in a manifest."""
    if isinstance(node, dict):
        if "message" in node and node.keys() & {"rule", "expression"}:
            yield node["message"]
        node = list(node.values())
    if isinstance(node, list):
        for one in node:
            yield from messages(one)


REFUSING = [
    path
    for path in sorted(MANIFESTS.rglob("*.yaml"))
    if any(True for document in yaml.safe_load_all(path.read_text()) for _ in messages(document))
]
BARE = {"…", "…: …", "….…"}
"""Texts that pass on what another one says."""


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
    named = {match[1] for row in ROWS if len(row) == 4 and (match := re.fullmatch(r"`([A-Z]\w+)`", row[0]))}

    assert named == {str(code) for code in ReasonCode}


FILES = [
    file
    for path in sorted((ROOT / "extender").rglob("*.py"))
    if texts_of(file := str(path.relative_to(ROOT / "extender"))) - BARE
]
TOLD = {text for row in ROWS if len(row) == 2 and row[1] for text in row[0].strip("`").split("`, `")}
"""What the tables of texts have a cure for; one row may have several texts."""


@pytest.mark.parametrize("file", FILES)
def test_every_error_text_has_its_row_with_its_cure(file: str):
    """A new text of an error needs a row in docs/reasons.md, wherever it is."""
    assert texts_of(file) - BARE - TOLD == set()


@pytest.mark.parametrize(
    ("module", "function"),
    [
        pytest.param(answers, "no_answer", id="no answer from the API server"),
        pytest.param(places, "_inactive", id="an inactive ClusterQueue"),
        pytest.param(guard, "", id="what the webhook refuses"),
    ],
)
def test_every_text_that_a_function_answers_has_its_row(module: ModuleType, function: str):
    tree = ast.parse(inspect.getsource(module))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and function in (node.name, "")]
    texts = {said for node in functions for said in answered(node, vars(module))}
    known = TOLD | {row[0].strip("`") for row in ROWS if len(row) == 3 and row[2]}

    assert len(texts) >= 5
    assert {text for text in texts if text not in known and f"…: {text}" not in known} == set()


def answered(function: ast.FunctionDef, names: dict[str, object]) -> Iterator[str]:
    """The texts that a function returns or gives a name to; constants of its module are filled in."""
    for node in ast.walk(function):
        if isinstance(node, ast.Return | ast.Assign) and isinstance(node.value, ast.Constant | ast.JoinedStr):
            for part in ast.walk(node.value):
                if isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.Name):
                    part.value = ast.Constant(names.get(part.value.id, "…"))
            text = "".join(
                str(part.value.value)
                if isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.Constant)
                else text_of(ast.JoinedStr([part]))
                for part in getattr(node.value, "values", [node.value])
            )
            if " " in text:
                yield text


@pytest.mark.parametrize("path", [pytest.param(path, id=str(path.relative_to(MANIFESTS))) for path in REFUSING])
def test_every_refusal_of_the_api_server_has_its_row(path: Path):
    texts = {message for document in yaml.safe_load_all(path.read_text()) for message in messages(document)}
    said = {re.sub(r"^a queued \w+ is started", "a queued … is started", text) for text in texts}

    assert said - TOLD == set()


@pytest.mark.parametrize("word", list(EvictionReason))
def test_every_reason_of_an_eviction_has_its_row(word: EvictionReason):
    told = {match for row in ROWS if len(row) == 3 and row[2] for match in re.findall(r"`(\w+)`", row[0])}

    assert word in told
