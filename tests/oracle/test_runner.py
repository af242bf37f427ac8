"""The runner itself: what it prints, when it fails, and that kept cases can be made again."""

import gzip
import json
from pathlib import Path

import pytest

from tests.oracle import __main__ as runner
from tests.oracle import differences as writer
from tests.oracle.cases import Json
from tests.oracle.compare import differences
from tests.oracle.files import read_cases
from tests.oracle.generate import FAMILIES, Maker, case, main

KEPT = Path(__file__).with_name("cases")


@pytest.fixture
def one() -> Json:
    """A case with admissions, victims and shares."""
    return next(read_cases([KEPT / "sharing.jsonl"]))


@pytest.fixture
def path(one: Json, tmp_path: Path) -> Path:
    """A file with that case alone."""
    made = tmp_path / "one.jsonl"
    made.write_text(json.dumps(one) + "\n\n")
    return made


def test_it_counts_by_family(path: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    report = tmp_path / "report.json"

    assert runner.main([str(path), "--json", str(report)]) == 0
    assert capsys.readouterr().out == "sharing 1/1\n"
    assert json.loads(report.read_text()) == {
        "families": {"sharing": {"agree": 1, "total": 1}},
        "differ": [],
        "wrong": {},
        "broken": [],
    }


def test_it_fails_on_a_disagreement(one: Json, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    one["result"]["final"]["pending"] = ["nobody"]
    path = tmp_path / "wrong.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(one).encode()))

    assert runner.main([str(path)]) == 1

    told = capsys.readouterr()

    assert told.out == "sharing 0/1\n"
    assert "final pending: want ['nobody']" in told.err


def broken(case: Json, path: str, value: object) -> bytes:
    """*case* with another value at *path*, ``scenario.workloads.0.count`` for example; MISSING takes it out."""
    made = json.loads(json.dumps(case))
    *parents, last = path.split(".")
    holder = made
    for part in parents:
        holder = holder[int(part)] if isinstance(holder, list) else holder[part]
    if value is MISSING:
        del holder[last]
    else:
        holder[last] = value
    return json.dumps(made).encode()


MISSING = object()


@pytest.mark.parametrize(
    ("name", "content", "want"),
    [
        pytest.param("x.jsonl", b"", "x.jsonl: has no case", id="an empty file"),
        pytest.param("x.jsonl", b"\n{]\n", "x.jsonl:2: is not JSON (", id="no JSON"),
        pytest.param("x.jsonl", b"[" * 200_000, "x.jsonl:1: is not JSON (", id="nested without end"),
        pytest.param("x.jsonl", b"\xff\xfe", "x.jsonl: is not text", id="no text"),
        pytest.param("x.jsonl.gz", b"{}", "x.jsonl.gz: cannot be read (Not a gzipped file", id="no gzip"),
        pytest.param(
            "x.jsonl.gz", gzip.compress(b"{}" * 999)[:-9], "x.jsonl.gz: is not a whole gzip", id="half a gzip"
        ),
        pytest.param("x.jsonl", b"[]", "x.jsonl:1: case is not an object", id="no object"),
        pytest.param("x.jsonl", b"{}", "x.jsonl:1: case.scenario is missing", id="nothing in it"),
    ],
)
def test_it_says_which_file_is_no_case(
    name: str, content: bytes, want: str, path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    odd = tmp_path / name
    odd.write_bytes(content)

    assert runner.main([str(odd), str(path)]) == 2

    told = capsys.readouterr()

    assert told.out == "sharing 1/1\n"
    assert told.err.startswith(f"{tmp_path}/{want}")


@pytest.mark.parametrize(
    ("spot", "value", "want"),
    [
        pytest.param("result", MISSING, "case.result is missing", id="no decisions"),
        pytest.param("result.final", MISSING, "result.final is missing", id="no final state"),
        pytest.param("result.shares", MISSING, "result.shares is missing", id="no shares"),
        pytest.param(
            "result.final.pending", 3, "result.final.pending is not a list", id="a final state of another kind"
        ),
        pytest.param("scenario.nodes", [], "scenario.nodes is not known", id="an unknown field"),
        pytest.param("scenario.workloads.0.podSets", [], "scenario.workloads[0].podSets is not known", id="one within"),
        pytest.param("scenario.workloads.0.count", 1.5, "scenario.workloads[0].count is not a whole", id="half a pod"),
        pytest.param("scenario.workloads.0.priority", True, "scenario.workloads[0].priority is not a", id="a yes"),
        pytest.param(
            "scenario.workloads.0.requests", {"cpu": "x"}, "scenario: 'x' is not a quantity", id="no quantity"
        ),
        pytest.param("scenario.clusterQueues.0.spec", MISSING, "scenario: spec is missing", id="a queue without spec"),
        pytest.param("scenario.clusterQueues", [3], "scenario: 'int' object", id="a queue of another kind"),
        pytest.param("result.cycles", [{"admitted": []}], "result: preempted is missing", id="half a cycle"),
    ],
)
def test_it_says_what_is_wrong_with_a_case(
    spot: str, value: object, want: str, one: Json, path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    odd = tmp_path / "odd.jsonl"
    odd.write_bytes(b"\n" + broken(one, spot, value))

    assert runner.main([str(odd), str(path)]) == 2

    told = capsys.readouterr()

    assert told.out == "sharing 1/1\n"
    assert told.err.startswith(f"{odd}:2: ")
    assert want in told.err


def test_it_says_that_there_is_nothing_to_compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert runner.main([str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"{tmp_path}: has no file that ends in .jsonl or .jsonl.gz\n"
    assert runner.main([str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err == f"{tmp_path}/none: cannot be read (No such file or directory)\n"


def test_it_says_that_its_report_cannot_be_written(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert runner.main([str(path), "--json", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"{tmp_path}: cannot be written (Is a directory)\n"


def test_a_listed_difference_that_agrees_fails_too(
    path: Path, one: Json, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    listed = tmp_path / "differences.txt"
    listed.write_text(f"# comment\n{one['scenario']['name']} 0011\n")
    monkeypatch.setattr(runner, "DIFFERENCES", listed)

    assert runner.main([str(path), "--policy", "default"]) == 1
    assert "differences.txt says that it differs" in capsys.readouterr().err


def test_it_draws_a_case(path: Path, one: Json, capsys: pytest.CaptureFixture[str]):
    assert runner.main([str(path), "--show", one["scenario"]["name"]]) == 0

    drawn = capsys.readouterr().out

    assert "cohort0" in drawn
    assert "they agree" in drawn
    assert runner.main([str(path), "--show", "unknown"]) == 1


def test_it_draws_where_decisions_part(one: Json, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    one["result"]["cycles"].append(
        {
            **one["result"]["cycles"][0],
            "cycle": len(one["result"]["cycles"]) + 1,
            "preempted": [{"name": "w1", "by": "w2", "reason": "InClusterQueue"}],
        }
    )
    path = tmp_path / "longer.jsonl"
    path.write_text(json.dumps(one))

    assert runner.main([str(path), "--show", one["scenario"]["name"]]) == 0

    drawn = capsys.readouterr().out

    assert "≠ cycle" in drawn
    assert "evicts w1 for w2: InClusterQueue" in drawn


def test_every_part_of_a_result_is_compared(one: Json):
    want = one["result"]
    have = json.loads(json.dumps(want))
    queue = next(iter(have["usage"]))
    have["usage"][queue]["red"]["cpu"] = "77"
    have["borrowing"]["nobody"] = {"red": {"cpu": "1"}}
    have["cohorts"]["cohort0"]["subtreeQuota"]["red"]["cpu"] = "78"
    have["shares"]["clusterQueues"][queue]["weighted"] = 12345

    found = differences(want, have)

    assert len(found) == 4
    assert found[0].startswith(f"usage of {queue}/red/cpu: want ")

    have["cohorts"]["other"] = {}

    assert any(line.startswith("cohorts: want ['cohort0'") for line in differences(want, have))


def test_kept_cases_can_be_made_again():
    for family in FAMILIES:
        kept = next(read_cases([KEPT / f"{family}.jsonl"]))

        assert case(Maker(family, 1_000).scenario(kept["scenario"]["name"])) == kept


def test_files_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr("tests.oracle.generate.FOLDER", tmp_path / "cases")
    monkeypatch.setattr(writer, "FILE", tmp_path / "differences.txt")

    assert main(["--seed", "7", "--count", "2"]) == 0
    assert sorted(one.name for one in (tmp_path / "cases").iterdir()) == sorted(
        f"{family}.jsonl" for family in FAMILIES
    )
    assert writer.main([tmp_path / "cases"]) == 0
    assert (tmp_path / "differences.txt").read_text().startswith("# Cases in which the shipped default")
    assert "cases differ" in capsys.readouterr().out


def test_it_tells_of_the_first_few_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    odd = tmp_path / "odd.jsonl"
    odd.write_text("{}\n" * 25)

    assert runner.main([str(odd)]) == 2

    told = capsys.readouterr().err.splitlines()

    assert len(told) == 21
    assert told[-1] == "and 5 more that are no cases"
