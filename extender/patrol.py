"""Looks in production, too, whether what must always hold does hold: one ClusterQueue after the other, some a second.

Everything recomputed at once would hold up the answers to kube-scheduler, so a round over all queues takes its time.
"""

from collections.abc import Callable, Iterator

import structlog

from extender.engine.engine import Engine
from extender.model.names import ClusterQueueName

EVERY_MS = 200

log = structlog.get_logger()


class Patrol:
    """``look`` after each pass; ``violated`` counts what was found, by the invariant's name."""

    def __init__(self, engine: Engine, violated: Callable[[str], None]) -> None:
        self._engine = engine
        self._violated = violated
        self._round: Iterator[ClusterQueueName] = iter(())
        self._looked_ms = 0

    def look(self, now_ms: int) -> None:
        """Look at the next queue, if it is time."""
        if now_ms - self._looked_ms < EVERY_MS:
            return
        self._looked_ms = now_ms
        name = next(self._round, None)
        if name is None:
            self._round = iter(self._engine.cluster_queue_names())
            return
        for invariant, problem in self._engine.check_queue(name):
            log.error("invariant_violated", invariant=invariant, problem=problem)
            self._violated(invariant)
