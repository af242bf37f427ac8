"""``kubectl cohort check``: what is wrong with objects in a file, before they are applied."""

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from extender.cli.check import check
from extender.cli.plugin import app
from extender.model.errors import UserError

EXAMPLES = Path(__file__).parents[2] / "manifests" / "examples"
OTHERS = {"CronJob", "Deployment", "StatefulSet"}
"""Kinds of which there is neither a quota object nor a row."""
LOOKED_AT = [
    path
    for path in sorted(EXAMPLES.rglob("*.yaml"))
    if not {found["kind"] for found in yaml.safe_load_all(path.read_text())} <= OTHERS
]
QUEUE = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: q}
spec:
  cohortName: all
  namespaceSelector: {}
  resourceGroups: [{flavors: [{name: a, resources: [{name: cpu, nominalQuota: %s}]}]}]
"""
AMOUNT = "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota"


def checked(folder: Path, text: str) -> tuple[str, bool]:
    """What is said of *text* as a file."""
    file = folder / "object.yaml"
    file.write_text(text)
    words, good = check("", str(file))
    return words.plain, good


@pytest.mark.parametrize("amount", ["4", "500m", "'2.5'", "12Gi"])
def test_a_good_quota_is_good(tmp_path, amount):
    assert checked(tmp_path, QUEUE % amount) == ("ClusterQueue q: nothing wrong with it", True)


@pytest.mark.parametrize(
    ("amount", "want"),
    [
        pytest.param("2.5", '2.5 is a number with a fraction; write it in quotes: "2.5"', id="a fraction"),
        pytest.param("four", "'four' is not a quantity; write for example 4, 500m or 12Gi", id="a word"),
        pytest.param("'-1'", "-1 is negative; write 0 or more", id="less than nothing"),
        pytest.param("true", "expected a quantity such as 4, 500m or 12Gi, got `bool`", id="no quantity at all"),
        pytest.param("", "is missing; write 0 or more", id="nothing"),
    ],
)
def test_a_wrong_quota_is_told_with_an_example(tmp_path, amount, want):
    assert checked(tmp_path, QUEUE % amount) == (f"ClusterQueue q\n  {AMOUNT}: {want}", False)


def test_an_unknown_version_and_a_missing_name_are_told(tmp_path):
    text = "{apiVersion: kueue.x-k8s.io/v1, kind: Cohort, spec: {}}"

    assert checked(tmp_path, text) == (
        (
            "Cohort (no name)\n  apiVersion: kueue.x-k8s.io/v1 is unknown; write kueue.x-k8s.io/v1beta2\n"
            "  metadata.name: is missing"
        ),
        False,
    )


def test_a_file_may_hold_more_than_one_object(tmp_path):
    text = "\n---\n".join([QUEUE % 1, "{apiVersion: v1, kind: Namespace, metadata: {name: n}}", QUEUE % "x"])

    said, good = checked(tmp_path, text)

    assert [line.strip() for line in said.splitlines()] == [
        "ClusterQueue q: nothing wrong with it",
        "v1 Namespace n: not looked at",
        "ClusterQueue q",
        f"{AMOUNT}: 'x' is not a quantity; write for example 4, 500m or 12Gi",
    ]
    assert not good


@pytest.mark.parametrize("path", [pytest.param(path, id=path.name) for path in LOOKED_AT])
def test_nothing_is_wrong_with_our_examples(path):
    said, good = check("", str(path))

    assert good, said.plain


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("a: [", "is not YAML (while parsing", id="no YAML"),
        pytest.param("kind: A\nspec: 2026-02-31", "is not YAML ('2026-02-31' is no timestamp in", id="a day of none"),
        pytest.param("kind: A\nspec: !!bool x", "is not YAML ('x' is no bool in", id="a tag that does not fit"),
        pytest.param("kind: A\nspec: {a: 1, a: 2}", "is not YAML (the key 'a' stands twice in", id="a key twice"),
        pytest.param("3", "holds something else than objects", id="a number"),
        pytest.param("# nothing", "holds no object", id="nothing"),
        pytest.param("{a: &a [*a]}", "cannot be written as JSON (Recursion limit", id="an alias within itself"),
        pytest.param("{spec: {1: a}}", "cannot be written as JSON (Dict key must be str", id="a key that is a number"),
        pytest.param("{apiVersion: v1, kind: Pod}", "no row for v1 Pod; there are rows for batch/v1 Job", id="a pod"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path, text, want):
    with pytest.raises(UserError) as error:
        checked(tmp_path, text)

    assert want in str(error.value)


def test_the_command_ends_with_1_when_something_is_wrong(tmp_path):
    file = tmp_path / "q.yaml"
    codes = []
    for amount in ("4", "four"):
        file.write_text(QUEUE % amount)
        codes.append(CliRunner().invoke(app, ["check", "--object", str(file)]).exit_code)
    absent = CliRunner().invoke(app, ["check", "--object", str(tmp_path / "none")])

    assert codes == [0, 1]
    assert (absent.exit_code, absent.output) == (
        1,
        f"error: {tmp_path}/none: cannot be read (No such file or directory)\n",
    )


def test_a_configuration_says_which_kinds_are_known(tmp_path):
    settings = tmp_path / "settings.yaml"
    settings.write_text(
        "{apiVersion: config.cohort-extender.io/v1alpha1, kind: Configuration, jobs: {integrations: []}}"
    )

    with pytest.raises(UserError) as error:
        check(str(settings), str(EXAMPLES / "jobs" / "jobset.yaml"))

    assert "no row for jobset.x-k8s.io/v1alpha2 JobSet; there are rows for batch/v1 Job, and the quota" in str(
        error.value
    )


@pytest.mark.parametrize(
    ("spec", "good", "want"),
    [
        pytest.param(
            "{admissionChecks: [check], namespaceSelector: {}, resourceGroups: %s}",
            False,
            "spec.admissionChecksStrategy: admission checks are not supported; the ClusterQueue would be inactive",
            id="an admission check",
        ),
        pytest.param(
            "{resourceGroups: %s}",
            True,
            "note: spec.namespaceSelector is left out: pods of no namespace are admitted; write {} for all of them",
            id="no namespace selector",
        ),
        pytest.param(
            "{namespaceSelector: {}}",
            True,
            "note: spec.resourceGroups is empty: there is no quota for anything",
            id="no quota",
        ),
    ],
)
def test_what_is_accepted_but_would_not_work_as_meant_is_told(tmp_path, spec, good, want):
    groups = "[{flavors: [{name: a, resources: [{name: cpu, nominalQuota: 1}]}]}]"
    text = "{apiVersion: kueue.x-k8s.io/v1beta2, kind: ClusterQueue, metadata: {name: q}, spec: %s}"

    said, right = checked(tmp_path, text % spec.replace("%s", groups))

    assert said.splitlines()[1:] == [f"  {want}"]
    assert right is good
