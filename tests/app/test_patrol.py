"""What must always hold is looked at in production, too."""

from extender.engine.engine import Engine
from extender.model.events import ClusterQueueSeen
from extender.model.names import ClusterQueueName
from extender.model.policy import Policy
from extender.model.quota import ClusterQueue
from extender.patrol import EVERY_MS, Patrol


def test_queues_are_looked_at_in_turn_and_what_does_not_hold_is_counted():
    engine, found = Engine(Policy()), []
    for name in ("a", "b"):
        engine.apply(ClusterQueueSeen(ClusterQueue(ClusterQueueName(name))))
    patrol = Patrol(engine, found.append)
    engine._world.states[ClusterQueueName("b")].pending.active += 1

    counts = []
    for step in range(1, 7):
        patrol.look(step * EVERY_MS)
        patrol.look(step * EVERY_MS + 1)
        counts.append(len(found))

    assert counts == [0, 0, 1, 1, 1, 2]
    assert found == ["line_in_order"] * 2
