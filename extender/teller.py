"""What people are told: conditions on pods, events, the status of queues, gauges. All of it paced, none of it decides.

A condition is written when ``pods.conditions`` says so, an event with it when its code is new and an edit is needed, or
when a pod that was told to wait is admitted. Evictions have an event each; a group has one for all of its pods.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import msgspec

from extender.engine.engine import Engine
from extender.engine.views import ClusterQueueView
from extender.model.amounts import UNLIMITED
from extender.model.effects import Effect, EvictPod, RecordEvent, SetPodCondition, SetQueueStatus
from extender.model.events import AdmissionRefused, EngineEvent, EvictionRefused, WorkloadGone, WorkloadSeen
from extender.model.jobs import JOB_PREFIX
from extender.model.names import CPU, ClusterQueueName, WorkloadUid
from extender.model.reasons import Reason
from extender.model.workload import Workload
from extender.pods.books import Books
from extender.pods.conditions import NEEDS_AN_EDIT, Conditions, Like, Saying, text
from extender.sentences import amounts
from extender.status import Statuses
from extender.tally import Tally

STATUS_MS = 1_000
"""How often the status of queues is looked at."""
AGAIN_MAX = 200
"""Of how many workloads and pods a new leader looks at what they are told, in one round: half a millisecond or so."""
EXPLAINED_MAX = 50
"""How many workloads are given a reason in one round."""
REFRESH_MS = 500
"""How often a reason that is known already is found anew. Whoever is tried in vain is tried in every pass."""


class Gauges(Protocol):
    """What queues hold, as numbers; see ``serve.metrics``."""

    def pending(self, cluster_queue: str, *, active: int, inadmissible: int) -> None:
        """How many wait."""
        ...

    def active(self, cluster_queue: str, count: int) -> None:
        """How many hold quota."""
        ...

    def usage(self, cluster_queue: str, flavor: str, resource: str, amount: float) -> None:
        """Quota in use: cores for cpu, units or bytes otherwise."""
        ...

    def share(self, cluster_queue: str, weighted_share: float) -> None:
        """The weighted share."""
        ...

    def forget(self, cluster_queue: str) -> None:
        """The ClusterQueue is gone."""
        ...


class Teller:
    """Notes what happens as it happens, and writes when it is time."""

    def __init__(self, *, engine: Engine, books: Books, submit: Callable[[Effect], None], gauges: Gauges) -> None:
        self._engine = engine
        self._books = books
        self._submit = submit
        self._gauges = gauges
        self._tally = Tally()
        self._conditions = Conditions()
        self._former: list[Conditions] = []
        self._fair = bool(engine.policy.fair_sharing)
        self._statuses = Statuses(
            engine, directory=books.directory, tally=self._tally, fair=self._fair, look=self._measure
        )
        self._statuses_ms = 0
        self._unexplained: dict[WorkloadUid, None] = {}
        self._looked_at: dict[WorkloadUid, None] = {}
        self._refreshed_ms = 0
        self._again: Iterator[WorkloadUid] = iter(())

    # --- what happens ---

    def fact(self, event: EngineEvent, now_ms: int) -> None:
        """The engine was told *event*."""
        match event:
            case WorkloadGone(uid):
                self._conditions.drop(uid)
                self._settled(uid)
                self._count(uid, None)
            case WorkloadSeen(workload) if workload.admission is not None:
                # Conditions of pods are set right when the watch shows them to be wrong; a Job has no such watch.
                if workload.uid.startswith(JOB_PREFIX):
                    self._conditions.note(workload.uid, None, now_ms)
                else:
                    self._conditions.drop(workload.uid)
                self._settled(workload.uid)
                self._count(workload.uid, workload)
            case WorkloadSeen(workload):
                self._unexplained[workload.uid] = None
                self._count(workload.uid, workload)
            case AdmissionRefused(uid) | EvictionRefused(uid):
                self._unexplained[uid] = None
                self._count(uid, self._engine.workload(uid))
            case _:
                pass

    def words(self, now_ms: int) -> None:
        """Take what the books have to say about single pods."""
        self._books.say_more(AGAIN_MAX)
        if self._former and not self._former[-1].let_go(AGAIN_MAX):
            self._former.pop()
        remarked, self._books.remarked = self._books.remarked, {}
        for uid, why in remarked.items():
            if why is None:
                self._conditions.drop(WorkloadUid(uid))
            else:
                self._note(WorkloadUid(uid), why, now_ms)
        stale, self._books.stale = self._books.stale, {}
        for uid in stale:
            pod = self._books.pod(uid)
            if pod is not None:
                self._conditions.note(WorkloadUid(uid), None, now_ms, shown=pod.admitted_reason)

    def tried(self, uids: Iterable[WorkloadUid]) -> None:
        """A pass has looked at *uids*, in vain: each is given its reason, at once if it has none yet."""
        for uid in uids:
            (self._looked_at if self._conditions.has(uid) else self._unexplained)[uid] = None

    def admitted(self, uid: WorkloadUid, cluster_queue: ClusterQueueName) -> None:
        """A workload was admitted."""
        self._count(uid, self._engine.workload(uid))
        self._statuses.touch(cluster_queue)

    def evicted(self, writes: Sequence[Effect], reason: str) -> None:
        """A workload was told to stop, by these writes: one event for all of its pods."""
        pods = [write for write in writes if isinstance(write, EvictPod)]
        if pods:
            first, more = pods[0], f" (and {len(pods) - 1} more pods of it)" if len(pods) > 1 else ""
            self._submit(RecordEvent(first.uid, first.namespace, first.name, reason, first.message + more))

    def warn(self, uid: WorkloadUid, reason: str, message: str) -> None:
        """Say something on the first pod of a workload that its owner should see."""
        for pod in self._books.pods_of(uid)[:1]:
            self._submit(RecordEvent(pod.uid, pod.namespace, pod.name, reason, message, warning=True))

    def start_over(self) -> None:
        """A term begins or ends: what others wrote meanwhile, and what of ours was not written, only the watch shows.

        Gauges are the leader's to show.
        """
        self._statuses.start_over()
        self._former.append(self._conditions)
        self._conditions = Conditions()
        self._unexplained, self._looked_at = {}, {}
        self._again = iter(self._tally.known())
        self._books.say_again()

    # --- what is written ---

    def explain(self, now_ms: int) -> Iterator[None]:
        """Give reasons to those that were tried, and to those that wait unseen, behind a StrictFIFO head say."""
        for uid in itertools.islice(self._again, AGAIN_MAX):
            if self._tally.waits(uid) and not self._conditions.has(uid):
                self._unexplained[uid] = None
        yield from self._explain(self._unexplained, now_ms)
        if now_ms - self._refreshed_ms >= REFRESH_MS:
            yield from self._explain(self._looked_at, now_ms)
            if not self._looked_at:
                self._refreshed_ms = now_ms

    def write_conditions(self, now_ms: int) -> None:
        """Write the conditions that are due."""
        for saying in self._conditions.due(now_ms):
            self._say(saying, now_ms)

    def write_statuses(self, now_ms: int) -> Iterator[None]:
        """Write the statuses that have changed, of some queues every second, step by step."""
        if now_ms - self._statuses_ms >= STATUS_MS:
            self._statuses_ms = now_ms
            for effects in self._statuses.due(now_ms):
                for effect in effects:
                    self._submit(effect)
                yield

    def refused(self, effect: SetQueueStatus) -> None:
        """A status was not written."""
        self._statuses.forget(effect)

    def unsaid(self, effect: SetPodCondition, now_ms: int) -> None:
        """A condition was not written, for no fault of its own."""
        pod = self._books.pod(effect.uid)
        if pod is not None:
            self._conditions.unsaid(WorkloadUid(pod.uid), now_ms, admitted=effect.status)
            if not effect.status and pod.group:
                self._conditions.unsaid(self._books.workload_of(pod), now_ms)

    def next_due_ms(self, now_ms: int) -> int | None:
        """When there may be a condition to write; None: when something happens."""
        return self._conditions.next_due_ms(now_ms)

    # --- details ---

    def _explain(self, uids: dict[WorkloadUid, None], now_ms: int) -> Iterator[None]:
        for uid in list(itertools.islice(uids, EXPLAINED_MAX)):
            del uids[uid]
            why = self._engine.reason_of(uid)
            if why is not None:
                self._note(uid, why, now_ms)
            yield

    def _settled(self, uid: WorkloadUid) -> None:
        self._unexplained.pop(uid, None)
        self._looked_at.pop(uid, None)

    def _note(self, uid: WorkloadUid, why: Reason, now_ms: int) -> None:
        workload, pods = self._engine.workload(uid), self._books.pods_of(uid)
        shown = pods[0].admitted_reason if pods else ""
        missing = any(pod.admitted_reason != why.code for pod in pods[1:])
        self._conditions.note(uid, why, now_ms, like=_like(workload), shown=shown, missing=missing)

    def _say(self, saying: Saying, now_ms: int) -> None:
        effects = self._books.condition(saying.uid, saying.why)
        if saying.refresh:
            effects = effects[:1]
        why = saying.why
        for index, effect in enumerate(effects):
            if isinstance(effect, SetPodCondition):
                message = self._admission_text(effect) if why is None else text(why, now_ms, same_as=saying.same_as)
                pod = self._books.pod(effect.uid)
                told = pod is not None and pod.admitted_reason == effect.reason
                if told and (saying.fill or (pod and pod.admitted_condition == message)):
                    continue
                effects[index] = said = msgspec.structs.replace(effect, message=message)
                self._submit(said)
                if index == 0:
                    self._record(said, why, first=saying.first)
            else:
                self._submit(effect)
        self._conditions.spend(max(0, len(effects) - 1))

    def _record(self, said: SetPodCondition, why: Reason | None, *, first: bool) -> None:
        if why is None or (first and why.code in NEEDS_AN_EDIT):
            warning = why is not None
            self._submit(RecordEvent(said.uid, said.namespace, said.name, said.reason, said.message, warning=warning))

    def _admission_text(self, effect: SetPodCondition) -> str:
        pod = self._books.pod(effect.uid)
        admission = self._engine.admission_of(self._books.workload_of(pod)) if pod else None
        if admission is None:
            return effect.message
        return f"ClusterQueue {admission.cluster_queue} holds {amounts(admission)} for it"

    def _count(self, uid: WorkloadUid, workload: Workload | None) -> None:
        changed = self._tally.note(uid, workload, self._engine.admission_of(uid) if workload else None)
        if changed is not None:
            self._statuses.touch_local(changed)
            queue = self._books.cluster_queue_of(changed)
            if queue is not None:
                self._statuses.touch(queue.name)

    def _measure(self, name: ClusterQueueName, view: ClusterQueueView | None) -> None:
        if view is None:
            self._gauges.forget(name)
            return
        self._gauges.pending(name, active=view.pending_active, inadmissible=view.pending_inadmissible)
        self._gauges.active(name, view.reserving)
        for one in view.usage:
            amount = min(one.used, UNLIMITED)
            self._gauges.usage(name, one.flavor, one.resource, amount / 1000 if one.resource == CPU else amount)
        if self._fair:
            self._gauges.share(name, view.weighted_share)


def _like(workload: Workload | None) -> Like | None:
    if workload is None:
        return None
    queue = f"{workload.queue.namespace}/{workload.queue.name}"
    return Like(queue, workload.name, (workload.priority, workload.pod_sets))
