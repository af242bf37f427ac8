"""Pods that come, run a short while and go, for hours: who submits them, their kubelets, and an auditor of the quota.

A *unit* is what a user submits: one pod or a group. Its pods are created at a steady pace, run ``run_s`` after their
gate is gone, are marked Succeeded and deleted some seconds later. A unit of which a pod is evicted is submitted anew.
All of it goes on through broken connections and restarts of the API server.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import aiohttp
import orjson

from tests.bench._raw import STRATEGIC, Raw, RawError, Seen, queued_pod

NAMESPACE = "load"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
ADMISSION = "cohort-extender.io/admission"
GROUP = "kueue.x-k8s.io/pod-group-name"
GROUP_SIZE = "kueue.x-k8s.io/pod-group-total-count"
LIVE_MAX = 1_000
QUEUED_MAX = 100
"""Pods that exist at once, and that are about to be created; above it nobody submits, so that too slow a machine
shows in the rate."""
CREATIONS_IN_FLIGHT = 24
ENDINGS_IN_FLIGHT = 24
DELETIONS_IN_FLIGHT = 32
KEPT_S = 3.0
"""How long a pod that has ended is kept."""
AGAIN_S = 0.5
FILL = 0.3
"""The part of the quota that the pods would use if no write took any time. On a busy machine each takes a second."""
GRACE_S = 30.0
"""How long after a quota was lowered what is in use may still be above it: longer than any pod runs."""
BROKEN = (RawError, aiohttp.ClientError, TimeoutError)


class Kind(NamedTuple):
    """Units of one kind: *part* of all units, so many *pods* each, *cpu* in cores a pod."""

    name: str
    part: float
    pods: int
    cpu: int
    run_s: float
    priority: int


KINDS = (
    Kind("small", 0.78, 1, 1, 1.0, 50),
    Kind("medium", 0.15, 1, 2, 2.0, 50),
    Kind("large", 0.01, 1, 6, 2.0, 200),
    Kind("group", 0.06, 4, 1, 1.5, 50),
)


def cores_needed(rate: float) -> float:
    """Cores that *rate* pods a second keep busy."""
    pods = sum(kind.part * kind.pods for kind in KINDS)
    return rate / pods * sum(kind.part * kind.pods * kind.cpu * kind.run_s for kind in KINDS)


@dataclass(slots=True)
class Unit:
    """One pod or a group; ``done`` are its pods of the present attempt that have ended."""

    number: int
    kind: Kind
    queue: str
    attempt: int = 0
    done: set[str] = field(default_factory=set)

    @property
    def names(self) -> list[str]:
        """The names of its present pods."""
        return [f"{self.kind.name}-{self.number:07}-{self.attempt}-{index}" for index in range(self.kind.pods)]


@dataclass(slots=True)
class Held:
    """A pod that exists, as the watch shows it."""

    unit: Unit
    attempt: int
    uid: str = ""
    made_s: float | None = None
    runs: bool = False
    counted: bool = False
    ended: bool = False
    leaves: bool = False


class Churn:
    """``await run(seconds)`` submits for so long, then ``settle`` waits until everything has ended.

    ``quota`` says how many cores each cohort has; whoever changes quotas tells it by ``lower``. ``violations`` says
    what did not hold, at any event of the watch.
    """

    def __init__(self, raw: Raw, *, rate: float, cohort_of: dict[str, str], quota: dict[str, int], seed: int) -> None:
        self.violations: list[str] = []
        self.counts: Counter[str] = Counter()
        self.quota = quota
        self._raw, self._rate, self._cohort_of = raw, rate, cohort_of
        self._excused_s = dict.fromkeys(quota, 0.0)
        self._used = dict.fromkeys(quota, 0)
        self._random = random.Random(seed)
        self._pods: dict[str, Held] = {}
        self._units: dict[int, Unit] = {}
        self._creations: asyncio.Queue[tuple[str, Unit, int]] = asyncio.Queue()
        self._endings: asyncio.Queue[str] = asyncio.Queue()
        self._deletions: asyncio.Queue[str] = asyncio.Queue()
        self._tasks: list[asyncio.Task[Any]] = []

    @property
    def crowded(self) -> bool:
        """Whether there is more than can be created, or than should exist."""
        return len(self._pods) > LIVE_MAX or self._creations.qsize() > QUEUED_MAX

    @property
    def progress(self) -> str:
        """One line for a person who waits."""
        waiting = sum(not pod.runs and not pod.ended for pod in self._pods.values())
        pods = f"{len(self._pods)} pods, {waiting} waiting, {self._creations.qsize()} to be created"
        used = f"{sum(self._used.values())} of {sum(self.quota.values())} cores"
        return f"{pods}, {used}, {dict(self.counts)}, violations: {len(self.violations)}"

    def start(self) -> None:
        """Begin to watch, and to play the kubelets."""
        self._began_s = time.monotonic()
        self._tasks = [asyncio.create_task(self._watch())]
        self._tasks += [asyncio.create_task(self._delete()) for _ in range(DELETIONS_IN_FLIGHT)]
        self._tasks += [asyncio.create_task(self._create()) for _ in range(CREATIONS_IN_FLIGHT)]
        self._tasks += [asyncio.create_task(self._end()) for _ in range(ENDINGS_IN_FLIGHT)]

    async def stop(self) -> None:
        """End all that ``start`` began; a failure of it is raised here."""
        failed = [task for task in self._tasks if task.done()]
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for task in failed:
            task.result()

    async def run(self, seconds: float) -> None:
        """Submit for *seconds*, at the rate, less where too many pods exist already."""
        began = last_s = time.monotonic()
        owed = 0.0
        while (now_s := time.monotonic()) - began < seconds:
            owed = 0.0 if self.crowded else min(owed + (now_s - last_s) * self._rate, self._rate)
            last_s = now_s
            while owed >= 1:
                owed -= self._submit().kind.pods
            await asyncio.sleep(0.02)

    async def settle(self, timeout_s: float) -> list[str]:
        """Wait until no pod is left; the names of those that still are after *timeout_s*."""
        deadline_s = time.monotonic() + timeout_s
        while (self._units or self._pods) and time.monotonic() < deadline_s:  # noqa: ASYNC110, two dicts, no hurry
            await asyncio.sleep(0.5)
        return sorted({name for unit in self._units.values() for name in unit.names} | self._pods.keys())

    def lower(self, cohort: str, cores: int) -> None:
        """The quota of *cohort* is *cores* now; what is in use may be above it for a while."""
        self.quota[cohort] = cores
        self._excused_s[cohort] = time.monotonic() + GRACE_S

    # Submitting.

    def _submit(self) -> Unit:
        (kind,) = self._random.choices(KINDS, [kind.part for kind in KINDS])
        unit = Unit(self.counts["units"], kind, self._random.choice(list(self._cohort_of)))
        self.counts["units"] += 1
        self._units[unit.number] = unit
        self._put(unit)
        return unit

    def _put(self, unit: Unit) -> None:
        for name in unit.names:
            self._creations.put_nowait((name, unit, unit.attempt))

    async def _create(self) -> None:
        while True:
            name, unit, attempt = await self._creations.get()
            held = self._pods.setdefault(name, Held(unit, attempt))
            kind = unit.kind
            group = {GROUP: f"group-{unit.number:07}-{attempt}", GROUP_SIZE: str(kind.pods)} if kind.pods > 1 else {}
            pod = queued_pod(name, queue=unit.queue, cpu=kind.cpu, priority_class=kind.name, annotations=group)
            status = await self._until_answered("POST", PODS, orjson.dumps(pod), (201, 409))
            self.counts["created"] += status == 201
            held.made_s = time.monotonic()

    # Playing kubelets.

    async def _end(self) -> None:
        while True:
            name = await self._endings.get()
            if name in self._pods:
                body = orjson.dumps({"status": {"phase": "Succeeded"}})
                await self._until_answered("PATCH", f"{PODS}/{name}/status", body, (200, 404), kind=STRATEGIC)

    async def _delete(self) -> None:
        """Delete what has ended, as their owner does."""
        body = orjson.dumps({"gracePeriodSeconds": 0})
        while True:
            name = await self._deletions.get()
            await self._until_answered("DELETE", f"{PODS}/{name}", body, (200, 404))

    async def _until_answered(self, method: str, path: str, body: bytes, wanted: tuple[int, ...], **how: str) -> int:
        """Send until the answer is one of *wanted*."""
        while True:
            try:
                status = await self._raw.send(method, path, body, **how)
            except BROKEN:
                self.counts["broken"] += 1
            else:
                if status in wanted:
                    return status
                self.counts[f"answered {status}"] += 1
            await asyncio.sleep(AGAIN_S)

    # Watching.

    async def _watch(self) -> None:
        while True:
            try:
                version = await self._list()
                async for change, pod in self._raw.watch(PODS, version):
                    if change == "DELETED":
                        self._gone(pod.metadata.name)
                    elif change in ("ADDED", "MODIFIED"):
                        self._see(pod)
                        self._audit(pod.metadata.name)
            except BROKEN:
                self.counts["lists"] += 1
                await asyncio.sleep(AGAIN_S)

    async def _list(self) -> str:
        """See all that is there, and what went meanwhile; the version of it."""
        began_s = time.monotonic()
        version, pods = await self._raw.list(PODS)
        here = {pod.metadata.name for pod in pods}
        were = [name for name, pod in self._pods.items() if pod.made_s is not None and pod.made_s < began_s]
        for name in were:
            if name not in here:
                self._gone(name)
        for pod in pods:
            self._see(pod)
        self._audit("a list")
        return version

    def _see(self, seen: Seen) -> None:
        name = seen.metadata.name
        pod = self._pods.get(name)
        if pod is None:
            return
        pod.uid = seen.metadata.uid
        if seen.metadata.deletion_timestamp and not seen.spec.node_name:
            self._rest(pod)  # it never gets a node any more, so it needs nothing
            if not pod.leaves:  # an API server that was killed in the middle leaves it so, for a collector of garbage
                pod.leaves = True
                asyncio.get_running_loop().call_later(KEPT_S, self._deletions.put_nowait, name)
        elif seen.status.phase in ("Succeeded", "Failed"):
            self._ended(name, pod)
        elif not seen.gated and not pod.runs:
            pod.runs = True
            if ADMISSION in (seen.metadata.annotations or {}):
                pod.counted = True
                self._use(pod, pod.unit.kind.cpu)
                self.counts["admitted"] += 1
            else:  # created while no webhook answered
                self.counts["came without a gate"] += 1
                if pod.unit.kind.pods > 1 and pod.attempt == pod.unit.attempt:
                    self._submit_anew(pod.unit)  # such a pod is no member, so the group can never be complete
            asyncio.get_running_loop().call_later(pod.unit.kind.run_s, self._endings.put_nowait, name)

    def _ended(self, name: str, pod: Held) -> None:
        if pod.ended:
            return
        self._rest(pod)
        pod.ended = True
        asyncio.get_running_loop().call_later(KEPT_S, self._deletions.put_nowait, name)
        if pod.attempt == pod.unit.attempt:
            pod.unit.done.add(name)
            if len(pod.unit.done) == pod.unit.kind.pods:
                self._units.pop(pod.unit.number, None)
                self.counts["units ended"] += 1

    def _gone(self, name: str) -> None:
        pod = self._pods.pop(name, None)
        if pod is None or pod.ended:
            return
        self._rest(pod)
        self.counts["evicted"] += 1
        if pod.attempt == pod.unit.attempt:
            pod.unit.attempt += 1
            pod.unit.done.clear()
            self._put(pod.unit)

    def _submit_anew(self, unit: Unit) -> None:
        for name in unit.names:
            self._deletions.put_nowait(name)
        unit.attempt += 1
        unit.done.clear()
        self._put(unit)

    def _rest(self, pod: Held) -> None:
        if pod.counted:
            pod.counted = False
            self._use(pod, -pod.unit.kind.cpu)

    # Auditing.

    def _use(self, pod: Held, cores: int) -> None:
        self._used[self._cohort_of[pod.unit.queue]] += cores

    def _audit(self, cause: str) -> None:
        now_s = time.monotonic()
        for cohort, used in self._used.items():
            if used > self.quota[cohort] and now_s > self._excused_s[cohort]:
                at_s = now_s - self._began_s
                self.violations.append(f"{at_s:.1f} s: {cohort} uses {used} of {self.quota[cohort]} cores, by {cause}")


def queue_names(cohorts: int, queues: int) -> Iterator[tuple[str, str]]:
    """Names of queues, each with its cohort's."""
    for cohort in range(cohorts):
        for queue in range(queues):
            yield f"cq-{cohort}-{queue}", f"cohort-{cohort}"
