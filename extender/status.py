"""The status of ClusterQueues, LocalQueues and Cohorts, as Kueue's objects carry it: written when it has changed.

Looking at a queue costs some microseconds, so each round looks at a bounded number of them: first those in which
something was decided, then the others in turn. Source: API specification, sections 2 to 4.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import msgspec
import orjson

from extender.engine.engine import Engine
from extender.engine.views import ClusterQueueView
from extender.model.amounts import UNLIMITED, format_amount
from extender.model.effects import SetQueueStatus
from extender.model.names import (
    ClusterQueueName,
    CohortName,
    FlavorName,
    FlavorResource,
    LocalQueueKey,
    LocalQueueName,
    Namespace,
    ResourceName,
)
from extender.model.quota import ClusterQueue, LocalQueue, StopPolicy
from extender.model.reasons import ReasonCode
from extender.pods.directory import Directory
from extender.tally import Tally

LOOKED_AT_MAX = 50
FLAVORS_MAX = 64
_CAUSES = {
    "it is being deleted": "Terminating",
    "FlavorNotFound": "FlavorNotFound",
    "AdmissionCheckNotFound": "AdmissionCheckNotFound",
}
"""How the engine's words for an inactive queue begin, and Kueue's reason for them; any other cause is Unknown."""

Key = tuple[str, ...]
"""Kind and name, of a LocalQueue kind, namespace and name."""


class _Written(msgspec.Struct):
    status: bytes
    active: bool = True
    since_ms: int = 0


class Statuses:
    """What was last written of each object. ``look`` is given each ClusterQueue that is looked at, None: it is gone."""

    def __init__(
        self,
        engine: Engine,
        *,
        directory: Directory,
        tally: Tally,
        fair: bool,
        look: Callable[[ClusterQueueName, ClusterQueueView | None], None],
    ) -> None:
        self._engine = engine
        self._directory = directory
        self._tally = tally
        self._fair = fair
        self._look = look
        self._written: dict[Key, _Written] = {}
        self._touched: dict[Key, None] = {}
        self._round: Iterator[Key] = iter(())
        self._known: set[Key] = set()

    def touch(self, cluster_queue: ClusterQueueName) -> None:
        """Something was decided in that cluster queue."""
        self._touched["ClusterQueue", cluster_queue] = None

    def touch_local(self, queue: LocalQueueKey) -> None:
        """Something changed in that LocalQueue."""
        self._touched["LocalQueue", queue.namespace, queue.name] = None

    def due(self, now_ms: int) -> Iterator[list[SetQueueStatus]]:
        """For each object looked at in this round, its status if that has changed."""
        for key in self._chosen():
            match key:
                case ("ClusterQueue", name):
                    yield self._cluster_queue(ClusterQueueName(name), now_ms)
                case ("LocalQueue", namespace, name):
                    yield self._local_queue(_local_key(namespace, name), now_ms)
                case (_, name):
                    yield self._cohort(CohortName(name))
                case _:
                    pass

    def _chosen(self) -> list[Key]:
        chosen = list(self._touched)[:LOOKED_AT_MAX]
        for key in chosen:
            del self._touched[key]
        for _ in range(LOOKED_AT_MAX - len(chosen)):
            following = next(self._round, None)
            if following is None:
                self._round = iter(self._everything())
                break
            chosen.append(following)
        return chosen

    def _everything(self) -> list[Key]:
        names: list[Key] = [("ClusterQueue", name) for name in sorted(self._directory.cluster_queues)]
        names += [("Cohort", name) for name in self._engine.cohort_names()]
        names += [("LocalQueue", key.namespace, key.name) for key in sorted(self._directory.local_queues)]
        now = set(names)
        for key in sorted(self._known - now):
            self._written.pop(key, None)
            if key[0] == "ClusterQueue":
                self._look(ClusterQueueName(key[1]), None)
        self._known = now
        return names

    # --- ClusterQueues ---

    def _cluster_queue(self, name: ClusterQueueName, now_ms: int) -> list[SetQueueStatus]:
        spec = self._directory.cluster_queues.get(name)
        if spec is None:
            return []  # only named by others, or deleted since it was chosen: there is no object to write to
        try:
            view = self._engine.view(name)
        except KeyError:
            return []
        self._known.add(("ClusterQueue", name))
        self._look(name, view)
        why, message = _activity(view)
        key = ("ClusterQueue", name)
        active = self._active(key, why, message, active=view.active, now_ms=now_ms)
        status = self._cluster_queue_status(view, spec, active)
        return self._if_new(key, status, active=view.active, now_ms=now_ms)

    def _cluster_queue_status(
        self, view: ClusterQueueView, spec: ClusterQueue, active: dict[str, object]
    ) -> dict[str, object]:
        used = {FlavorResource(one.flavor, one.resource): one for one in view.usage}
        amounts = {fr: (one.used, one.borrowed) for fr, one in used.items()}
        usage = _by_flavor(spec, amounts, borrowed=True)
        status: dict[str, object] = {
            "conditions": [active],
            "flavorsReservation": usage,
            "flavorsUsage": usage,  # nothing comes between reservation and admission here
            "pendingWorkloads": view.pending_active + view.pending_inadmissible,
            "reservingWorkloads": view.reserving,
            "admittedWorkloads": view.reserving,
        }
        if self._fair:
            status["fairSharing"] = {"weightedShare": view.weighted_share}
        return status

    # --- LocalQueues ---

    def _local_queue(self, key: LocalQueueKey, now_ms: int) -> list[SetQueueStatus]:
        queue = self._directory.local_queues.get(key)
        if queue is None:
            return []
        count, spec = self._tally.of(key), self._directory.cluster_queues.get(queue.cluster_queue)
        why, message = self._local_activity(queue, spec)
        stopped = queue.stop_policy is not StopPolicy.NONE
        amounts = {fr: (amount, 0) for fr, amount in count.usage.items()}
        usage = _by_flavor(spec, amounts, borrowed=False) if spec else []
        name: Key = ("LocalQueue", key.namespace, key.name)
        status = {
            "conditions": [self._active(name, why, message, active=why == "Ready", now_ms=now_ms)],
            "flavorsReservation": usage,
            "flavorsUsage": usage,
            "pendingWorkloads": 0 if stopped else count.pending,
            "reservingWorkloads": count.reserving,
            "admittedWorkloads": count.reserving,
        }
        return self._if_new(name, status, active=why == "Ready", now_ms=now_ms)

    def _local_activity(self, queue: LocalQueue, spec: ClusterQueue | None) -> tuple[str, str]:
        """Kueue's reason and a message; ``Ready`` is the only one that is active."""
        if queue.stop_policy is not StopPolicy.NONE:
            return "Stopped", f"LocalQueue is on {queue.stop_policy}"
        if spec is None:
            return "ClusterQueueDoesNotExist", f"Can't submit new workloads to ClusterQueue {queue.cluster_queue}"
        if not self._engine.view(spec.name).active:
            return "ClusterQueueIsInactive", f"ClusterQueue {spec.name} is not active"
        return "Ready", "Can submit new workloads to ClusterQueue"

    # --- Cohorts ---

    def _cohort(self, name: CohortName) -> list[SetQueueStatus]:
        try:
            view = self._engine.cohort_view(name)
        except KeyError:
            return []
        if not view.explicit or not self._fair:
            return []
        return self._if_new(("Cohort", name), {"fairSharing": {"weightedShare": view.weighted_share}})

    # --- what was written ---

    def _active(self, key: Key, why: str, message: str, *, active: bool, now_ms: int) -> dict[str, object]:
        written = self._written.get(key)
        since_ms = written.since_ms if written and written.active == active else now_ms
        return {
            "type": "Active",
            "status": "True" if active else "False",
            "reason": why,
            "message": message,
            "lastTransitionTime": datetime.fromtimestamp(since_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }

    def _if_new(
        self, key: Key, status: dict[str, object], *, active: bool = True, now_ms: int = 0
    ) -> list[SetQueueStatus]:
        text = orjson.dumps(status)
        old = self._written.get(key)
        if old is not None and old.status == text:
            return []
        since_ms = old.since_ms if old and old.active == active else now_ms
        self._written[key] = _Written(text, active, since_ms)
        return [SetQueueStatus(key[0], key[1] if len(key) > 2 else "", key[-1], text)]

    def forget(self, effect: SetQueueStatus) -> None:
        """The write was not carried out: it differs again."""
        key: Key = (effect.kind, *((effect.namespace, effect.name) if effect.namespace else (effect.name,)))
        written = self._written.get(key)
        if written is not None and written.status == effect.status:
            written.status = b""
            self._touched[key] = None

    def start_over(self) -> None:
        """Somebody else has written since: everything may differ."""
        for key in sorted(self._known):
            if key[0] == "ClusterQueue":
                self._look(ClusterQueueName(key[1]), None)
        self._written.clear()
        self._known.clear()
        self._round = iter(())


def _local_key(namespace: str, name: str) -> LocalQueueKey:
    return LocalQueueKey(Namespace(namespace), LocalQueueName(name))


def _activity(view: ClusterQueueView) -> tuple[str, str]:
    """Kueue's reason and a message for a ClusterQueue."""
    why = view.reason
    if why is None:
        return "Ready", "Can admit new workloads"
    if why.code is ReasonCode.STOPPED:
        return "Stopped", why.sentence()
    cause = str(dict(why.fields).get("cause", ""))
    return next((name for text, name in _CAUSES.items() if cause.startswith(text)), "Unknown"), why.sentence()


def _quantity(amount: int, resource: ResourceName) -> str:
    """*amount* as the API server takes it: no word, and no more than 64 bits hold."""
    return format_amount(min(amount, UNLIMITED - 1), resource)


def _by_flavor(
    spec: ClusterQueue, amounts: dict[FlavorResource, tuple[int, int]], *, borrowed: bool
) -> list[dict[str, object]]:
    """Used amounts, flavors in the order of the spec, resources by name; *amounts* are used and borrowed."""
    flavors: dict[FlavorName, list[dict[str, str]]] = {}
    for group in spec.resource_groups:
        for quotas in group.flavors:
            resources = flavors.setdefault(quotas.flavor, [])
            for resource in sorted(group.covered):
                used, above = amounts.get(FlavorResource(quotas.flavor, resource), (0, 0))
                entry = {"name": str(resource), "total": _quantity(used, resource)}
                if borrowed:
                    entry["borrowed"] = _quantity(above, resource)
                resources.append(entry)
    return [{"name": name, "resources": resources} for name, resources in list(flavors.items())[:FLAVORS_MAX]]
