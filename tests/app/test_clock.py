"""The date of the wall clock, the pace of one that never jumps."""

import pytest

from extender.clock import DatedClock, steady_clock


class Hands:
    """A clock that is set by hand."""

    def __init__(self, now_s):
        self.now_s = now_s

    def __call__(self):
        return self.now_s


@pytest.mark.parametrize(
    "jump_s",
    [
        pytest.param(3600.0, id="an hour forward"),
        pytest.param(-3600.0, id="an hour back"),
        pytest.param(0.0, id="none"),
    ],
)
def test_a_jump_of_the_wall_clock_changes_no_difference(jump_s):
    steady, wall = Hands(50.0), Hands(1772353815.0)
    clock = DatedClock(steady=steady, wall=wall)
    before = clock()
    steady.now_s += 7
    wall.now_s += 7 + jump_s

    assert (before, clock()) == (1772353815000, 1772353822000)


def test_the_date_is_taken_anew_when_asked():
    steady, wall = Hands(50.0), Hands(1772353815.0)
    clock = DatedClock(steady=steady, wall=wall)
    wall.now_s += 3600
    clock.set_date()

    assert clock() == 1772357415000


def test_our_clock_runs_on_while_the_machine_sleeps():
    assert steady_clock() > 0
