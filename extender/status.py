"""The status of ClusterQueues and Cohorts, as Kueue's objects carry it: written when it differs from what was written.

Looking at a queue costs some microseconds, so each round looks at a bounded number of them: first those in which
something was decided, then the others in turn. Source: API specification, sections 2 and 3.3.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import msgspec
import orjson

from extender.engine.engine import Engine
from extender.engine.views import ClusterQueueView, UsageView
from extender.model.amounts import format_amount
from extender.model.effects import SetQueueStatus
from extender.model.names import ClusterQueueName, CohortName
from extender.model.reasons import ReasonCode

LOOKED_AT_MAX = 50
FLAVORS_MAX = 64


class _Written(msgspec.Struct):
    status: bytes
    active: bool = True
    since_ms: int = 0


class Statuses:
    """What was last written of each object."""

    def __init__(self, engine: Engine, *, fair: bool) -> None:
        self._engine = engine
        self._fair = fair
        self._written: dict[tuple[str, str], _Written] = {}
        self._touched: dict[ClusterQueueName, None] = {}
        self._round: Iterator[tuple[str, str]] = iter(())

    def touch(self, names: Iterable[ClusterQueueName]) -> None:
        """Something was decided in these cluster queues."""
        self._touched.update(dict.fromkeys(names))

    def due(self, now_ms: int) -> list[SetQueueStatus]:
        """The statuses that have changed, of the objects looked at in this round."""
        effects = []
        for kind, name in self._chosen():
            if kind == "ClusterQueue":
                effects += self._cluster_queue(ClusterQueueName(name), now_ms)
            else:
                effects += self._cohort(CohortName(name))
        return effects

    def _chosen(self) -> list[tuple[str, str]]:
        chosen = [("ClusterQueue", str(name)) for name in list(self._touched)[:LOOKED_AT_MAX]]
        for _, name in chosen:
            del self._touched[ClusterQueueName(name)]
        for _ in range(LOOKED_AT_MAX - len(chosen)):
            following = next(self._round, None)
            if following is None:
                self._round = iter(self._everything())
                break
            chosen.append(following)
        return chosen

    def _everything(self) -> list[tuple[str, str]]:
        names = [("ClusterQueue", str(name)) for name in self._engine.cluster_queue_names()]
        names += [("Cohort", str(name)) for name in self._engine.cohort_names()]
        self._written = {key: value for key, value in self._written.items() if key in set(names)}
        return names

    def _cluster_queue(self, name: ClusterQueueName, now_ms: int) -> list[SetQueueStatus]:
        try:
            view = self._engine.view(name)
        except KeyError:
            return []  # deleted since it was chosen
        if view.reason is not None and view.reason.code is ReasonCode.QUEUE_NOT_FOUND:
            return []  # only named by others: there is no object to write to
        written = self._written.get(("ClusterQueue", name))
        since_ms = written.since_ms if written and written.active == view.active else now_ms
        status = orjson.dumps(self._cluster_queue_status(view, since_ms))
        return self._if_new("ClusterQueue", name, _Written(status, view.active, since_ms))

    def _cluster_queue_status(self, view: ClusterQueueView, since_ms: int) -> dict[str, object]:
        usage = _by_flavor(view.usage)
        status: dict[str, object] = {
            "conditions": [_active(view, since_ms)],
            "flavorsReservation": usage,
            "flavorsUsage": usage,  # nothing comes between reservation and admission here
            "pendingWorkloads": view.pending_active + view.pending_inadmissible,
            "reservingWorkloads": view.reserving,
            "admittedWorkloads": view.reserving,
        }
        if self._fair:
            status["fairSharing"] = {"weightedShare": view.weighted_share}
        return status

    def _cohort(self, name: CohortName) -> list[SetQueueStatus]:
        try:
            view = self._engine.cohort_view(name)
        except KeyError:
            return []
        if not view.explicit or not self._fair:
            return []
        status = orjson.dumps({"fairSharing": {"weightedShare": view.weighted_share}})
        return self._if_new("Cohort", name, _Written(status))

    def _if_new(self, kind: str, name: str, new: _Written) -> list[SetQueueStatus]:
        old = self._written.get((kind, name))
        if old is not None and old.status == new.status:
            return []
        self._written[kind, name] = new
        return [SetQueueStatus(kind, "", name, new.status)]

    def forget(self, effect: SetQueueStatus) -> None:
        """The write was not carried out: it differs again."""
        self._written.pop((effect.kind, effect.name), None)


def _active(view: ClusterQueueView, since_ms: int) -> dict[str, object]:
    why = view.reason
    return {
        "type": "Active",
        "status": "True" if view.active else "False",
        "reason": "Ready" if view.active else ("Stopped" if why and why.code is ReasonCode.STOPPED else "Inactive"),
        "message": "Can admit new workloads" if why is None else why.sentence(),
        "lastTransitionTime": datetime.fromtimestamp(since_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def _by_flavor(usage: Iterable[UsageView]) -> list[dict[str, object]]:
    flavors: dict[str, list[dict[str, str]]] = {}
    for view in usage:
        flavors.setdefault(view.flavor, []).append(
            {
                "name": view.resource,
                "total": format_amount(view.used, view.resource),
                "borrowed": format_amount(view.borrowed, view.resource),
            }
        )
    return [{"name": name, "resources": resources} for name, resources in list(flavors.items())[:FLAVORS_MAX]]
