"""The extender's verbs, sans-IO: bytes of a request in, a reply out. Nothing waits, so answers never overlap.

Each verb refuses in its own way, because the scheduler reads no body of a reply that is not 200: filter by its
``Error`` field, prioritize and preempt by a status. Source: extender protocol, sections 2, 4–6 and 10.
"""

from collections.abc import Callable
from typing import Protocol

from extender.model.errors import ExtenderError, InvariantError, TransientError, UserError
from extender.model.questions import PlacementQuestion, PreemptionQuestion
from extender.model.verdicts import FilterVerdict, NodeScore, NodeVictims
from extender.serve.http import Reply, refuse
from extender.serve.wire import (
    read_placement,
    read_preemption,
    write_refusal,
    write_scores,
    write_verdict,
    write_victims,
)


class Placement(Protocol):
    """Who answers. Each answer is pure and at once.

    Raises: TransientError, when it cannot answer yet (not synced); UserError, when the question makes no sense.
    """

    def filter(self, question: PlacementQuestion) -> FilterVerdict:
        """Which of the nodes the pod may use."""
        ...

    def prioritize(self, question: PlacementQuestion) -> list[NodeScore]:
        """How well each of the nodes suits, 0 to 10."""
        ...

    def preempt(self, question: PreemptionQuestion) -> dict[str, NodeVictims]:
        """Which of the candidate nodes may lose which of the victims; a node left out is struck."""
        ...


class Extender:
    """The three verbs over one *placement*."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement

    def filter(self, body: bytes) -> Reply:
        """POST /filter."""
        try:
            return Reply(200, write_verdict(self._placement.filter(read_placement(body))), "answered")
        except InvariantError:
            raise
        except ExtenderError as error:
            return Reply(200, write_refusal(str(error)), "refused")

    def prioritize(self, body: bytes) -> Reply:
        """POST /prioritize."""
        return _or_refuse(lambda: write_scores(self._placement.prioritize(read_placement(body))))

    def preempt(self, body: bytes) -> Reply:
        """POST /preempt."""

        def answer() -> bytes:
            question = read_preemption(body)
            return write_victims(self._placement.preempt(question), question)

        return _or_refuse(answer)


def _or_refuse(answer: Callable[[], bytes]) -> Reply:
    try:
        return Reply(200, answer(), "answered")
    except TransientError as error:
        return refuse(503, str(error))
    except UserError as error:
        return refuse(400, str(error))
