"""The runner itself: what it prints, when it fails, and that kept cases can be made again."""

import gzip
import json
from pathlib import Path

import pytest

from tests.oracle import __main__ as runner
from tests.oracle import differences as writer
from tests.oracle.cases import Json, read_cases
from tests.oracle.compare import differences
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
    }


def test_it_fails_on_a_disagreement(one: Json, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    one["result"]["final"]["pending"] = ["nobody"]
    path = tmp_path / "wrong.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(one).encode()))

    assert runner.main([str(path)]) == 1

    told = capsys.readouterr()

    assert told.out == "sharing 0/1\n"
    assert "final pending: want ['nobody']" in told.err


def test_it_fails_when_there_is_nothing_to_compare(tmp_path: Path):
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")

    assert runner.main([str(empty)]) == 1


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
