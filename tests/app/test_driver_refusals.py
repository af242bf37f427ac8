"""What the driver does with words that could not be written."""

import pytest

from extender.driver import Driver
from extender.engine.engine import Engine
from extender.model.effects import SetPodCondition
from extender.model.events import PodSeen
from extender.model.policy import Policy
from extender.pods.books import Books
from extender.pods.conditions import UNSAID_MS
from tests.pods.build import pod
from tests.sim.replica import Meter


class Desk:
    """A leading driver on a clock of our own, and what it has submitted."""

    def __init__(self):
        self.now_ms = 1_000_000
        self.effects = []
        self.driver = Driver(
            engine=Engine(Policy()),
            books=Books(),
            submit=self.effects.append,
            clock_ms=lambda: self.now_ms,
            meter=Meter(),
        )
        self.driver.lead(True)

    def conditions(self):
        found = [effect for effect in self.effects if isinstance(effect, SetPodCondition)]
        self.effects.clear()
        return found


@pytest.mark.parametrize(
    ("cause", "again"),
    [
        pytest.param("invalid: 403 forbidden", True, id="not allowed yet"),
        pytest.param("expired: gave up", True, id="not in time"),
        pytest.param("dropped: superseded", False, id="something newer is said"),
        pytest.param("fenced: not the leader", True, id="the next leader may be we"),
    ],
)
async def test_a_reason_that_was_not_written_is_written_later(cause, again):
    desk = Desk()
    desk.driver.take([PodSeen(pod("p"))])
    desk.driver.turn()
    (first,) = desk.conditions()
    desk.driver.refused(first, cause)
    desk.driver.turn()
    at_once = desk.conditions()
    desk.now_ms += UNSAID_MS
    desk.driver.turn()

    assert at_once == []
    assert [effect.reason for effect in desk.conditions()] == ([first.reason] if again else [])
