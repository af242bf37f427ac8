"""The tree as it is drawn: who uses what of whose quota."""

import io

import pytest
from rich.console import Console

from extender.cli.tree import bar_width, build, draw, totals


def cohort(name, parent="", weight=None, quota=None):
    spec = {"parentName": parent} if parent else {}
    if weight:
        spec["fairSharing"] = {"weight": weight}
    if quota is not None:
        spec["resourceGroups"] = groups(quota)
    return {"metadata": {"name": name}, "spec": spec}


def queue(name, parent, used, quota=0, **status):
    total = [{"name": "a100", "resources": [{"name": "gpu", "total": str(used)}]}]
    return {
        "metadata": {"name": name},
        "spec": {"cohortName": parent, "resourceGroups": groups(quota)},
        "status": {"flavorsReservation": total, **status},
    }


def groups(quota):
    return [{"flavors": [{"name": "a100", "resources": [{"name": "gpu", "nominalQuota": quota}]}]}]


def shown(*objects):
    cohorts, queues = objects
    console = Console(file=io.StringIO(), width=120, color_system=None)
    console.print(draw(build(cohorts, queues), width=10))
    return console.file.getvalue()


HOSPITAL = (
    [cohort("all", quota=100), cohort("research", "all", "0.4")],
    [queue("training", "research", 40, pendingWorkloads=3), queue("alone", "", 1, 2)],
)


def test_a_cohort_shows_what_everything_under_it_uses():
    (root, _) = build(*HOSPITAL)
    quota, used = totals(root)

    assert list(quota.values()) == [100]
    assert list(used.values()) == [40]


def test_the_picture():
    want = [
        "all",
        "████░░░░░░ 40 of 100  gpu a100",
        "research  weight 0.4",
        "██████████ 40 of 0, 40 borrowed  gpu a100",
        "training  3 waiting",
        "alone",
        "█████░░░░░ 1 of 2  gpu a100",
    ]
    text = shown(*HOSPITAL)

    positions = [text.index(line) for line in want]
    assert positions == sorted(positions)


def test_a_parent_without_an_object_is_drawn():
    assert "ghost" in shown([], [queue("q", "ghost", 0)])


def test_a_cycle_of_cohorts_is_drawn_once_each():
    text = shown([cohort("a", "b"), cohort("b", "a")], [queue("q", "a", 1, 1)])

    assert text.count("a100") == 1
    assert all(name in text for name in ("a", "b", "q"))


def test_an_inactive_queue_says_why():
    conditions = [{"type": "Active", "status": "False", "message": "flavor h100 is missing"}]

    assert "flavor h100 is missing" in shown([], [queue("q", "", 0, conditions=conditions)])


@pytest.mark.parametrize(("columns", "want"), [(40, 6), (80, 10), (94, 24), (10_000, 24)])
def test_a_bar_leaves_room_for_its_numbers(columns, want):
    assert bar_width(columns) == want
