"""Why a workload waits: every code of the engine, with its numbers."""

import pytest

from extender.model.reasons import Reason, ReasonCode, reason
from tests.engine.drawing import CLASSICAL, Lab


@pytest.mark.parametrize(
    ("drawing", "running", "asked", "want"),
    [
        pytest.param("q 2", {}, 3, "needs 3 gpu of f, ClusterQueue q can never have over 2", id="too large for ever"),
        pytest.param(
            "q 2", {"q": 2}, 1, "ClusterQueue q uses 2 of its 2 gpu of f, 1 more needed", id="own quota in use"
        ),
        pytest.param(
            "K 5\n  q 2 borrows=0",
            {"q": 2},
            1,
            "ClusterQueue q uses 2 of its 2 gpu of f, 1 more needed",
            id="must not borrow",
        ),
        pytest.param(
            "K 5\n  q 2 borrows=3",
            {"q": 4},
            2,
            "q has borrowed 2 of at most 3 gpu of f, 1 more needed",
            id="borrowing limit of the queue",
        ),
        pytest.param(
            "R 9\n  K 1 borrows=2\n    q 1",
            {"q": 3},
            2,
            "K has borrowed 1 of at most 2 gpu of f, 1 more needed",
            id="borrowing limit of a cohort",
        ),
        pytest.param(
            "K 1\n  q 1\n  p 4 lends=1",
            {"q": 2},
            2,
            "1 more gpu of f needed; 3 idle but kept by p",
            id="idle but kept",
        ),
        pytest.param(
            "K 1\n  q 1\n  p 1",
            {"p": 3},
            1,
            "cohort K lends 3 gpu of f, 3 in use, 1 more needed",
            id="nothing left in the cohort",
        ),
        pytest.param(
            "K 1\n  q 1 borrows=1\n  p 2 lends=2",
            {"p": 4},
            2,
            "cohort K lends 4 gpu of f, 4 in use, 2 more needed",
            id="the tighter of two limits speaks",
        ),
    ],
)
def test_shortage(drawing, running, asked, want):
    lab = Lab(drawing)
    for queue, size in running.items():
        lab.runs(f"in-{queue}", queue, size)
    lab.waits("w", "q", asked)
    lab.decide()

    assert lab.why("w") == want


def test_the_nearest_flavor_speaks():
    lab = Lab("q red/gpu=1 blue/gpu=3 green/gpu=9")
    lab.runs("full", "q", 8, flavor="green")
    lab.runs("part", "q", 3, flavor="blue")
    lab.waits("w", "q", 3)
    lab.decide()

    assert lab.why("w") == "ClusterQueue q uses 8 of its 9 gpu of green, 2 more needed"


def test_the_worst_resource_group_speaks():
    lab = Lab("q red/cpu=4000 blue/gpu=2")
    lab.runs("cpu", "q", {"cpu": 4000}, flavor="red")
    lab.waits("w", "q", {"cpu": 500, "gpu": 3})
    lab.decide()

    assert lab.why("w") == "needs 3 gpu of blue, ClusterQueue q can never have over 2"


def test_the_worst_resource_of_a_flavor_speaks():
    lab = Lab("q red/cpu=4000 red/gpu=2")
    lab.runs("all", "q", {"cpu": 3000, "gpu": 2}, flavor="red")
    lab.waits("w", "q", {"cpu": 2000, "gpu": 1})
    lab.decide()

    assert lab.why("w") == "ClusterQueue q uses 2 of its 2 gpu of red, 1 more needed"


def test_as_few_pods_as_will_do_count():
    lab = Lab("q 4")
    lab.runs("r", "q", 2)
    lab.waits("w", "q", 1, count=6, count_min=3)
    lab.decide()

    assert lab.why("w") == "ClusterQueue q uses 2 of its 4 gpu of f, 1 more needed"


def test_behind_others_of_its_queue():
    lab = Lab("q 4 within=lower", CLASSICAL)
    lab.runs("low", "q", 3)
    lab.waits("big", "q", 4, priority=1)
    lab.waits("small", "q", 1)
    lab.decide()

    assert lab.why("small") == "1 workloads of priority 0 or more go first"


def test_not_looked_at_yet():
    lab = Lab("q 4")
    lab.waits("w", "q", 1)

    assert lab.why("w") == "not yet evaluated"

    lab.engine.run_pass(0)
    lab.waits("v", "q", 1)

    assert lab.code("v") == "NotEvaluated"


def test_an_edit_that_was_not_looked_at_yet():
    lab = Lab("q 4")
    lab.waits("w", "q", 9)
    lab.decide()
    lab.draw("q 5")

    assert lab.code("w") == "NotEvaluated"


def test_nobody_waits_no_reason():
    lab = Lab("q 4")
    lab.runs("r", "q", 1)

    assert lab.engine.reason_of("r") is None
    assert lab.engine.reason_of("x") is None


def test_a_pass_tells_whom_it_tried_in_vain():
    lab = Lab("q 4")
    lab.waits("w", "q", 9)
    lab.waits("fits", "q", 4)
    lab.waits("same", "q", 9)
    result = lab.engine.run_pass(0)

    assert result.looked == ("w",)
    assert result.wake_at_ms is None


def test_a_queue_that_covers_nothing():
    lab = Lab("q")
    lab.waits("w", "q", 1)
    lab.decide()

    assert lab.why("w") == "ClusterQueue q has no quota for gpu (covers nothing)"


@pytest.mark.parametrize(
    ("number", "want"),
    [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (12, "12th"), (23, "23rd"), (113, "113th")],
)
def test_positions_are_said_as_people_do(number, want):
    made = reason(ReasonCode.BEHIND_STRICT_HEAD, position=number, cluster_queue="q", head="h")

    assert made.sentence() == f"StrictFIFO: {want} in ClusterQueue q, behind h"


def test_a_reason_needs_its_fields():
    with pytest.raises(KeyError):
        reason(ReasonCode.STOPPED, object="q")


def test_amounts_are_said_in_their_unit_and_texts_as_they_are():
    made = Reason(
        ReasonCode.RESERVED_FOR_PREEMPTOR,
        (("amount", 1500), ("resource", "cpu"), ("flavor", "f"), ("preemptor", "p")),
    )

    assert made.sentence() == "1500m cpu of f is held for p, which goes first"
    assert reason(ReasonCode.VICTIMS_LEAVING, left=1, victims=2).sentence() == (
        "1 of 2 preempted workloads have not left yet"
    )
