"""Plays everybody around the service in a scalability run: those who submit, the scheduler and the kubelets.

Each workload is one pod, created at its time. ``run_s`` after its gate is gone the pod is marked Succeeded, unless
real ones do that (``finishes`` False). A pod that is evicted starts anew, as its Job would see to.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field

import orjson

from tests.bench._plan import Arrival, Plan
from tests.bench._raw import STRATEGIC, Raw, Seen, queued_pod
from tests.rig.nodes import PREFIX

NAMESPACE = "load"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
CREATIONS_IN_FLIGHT = 12
"""Few, so that a crowd waits here and not in the API server, in the way of everybody else."""
ENDINGS_IN_FLIGHT = 24


@dataclass(slots=True)
class Life:
    """One workload's times, seconds since the start."""

    arrival: Arrival
    number: int
    attempt: int = 0
    uid: str = ""
    created_s: float | None = None
    admitted_s: float | None = None
    since_s: float | None = None
    finished_s: float | None = None
    evictions: int = 0

    @property
    def pod(self) -> str:
        """The name of its present pod."""
        return f"{self.arrival.kind.name}-{self.number:06}-{self.attempt}"


@dataclass
class Log:
    """What a run leaves behind: lives, and the cores in use after each change."""

    lives: list[Life]
    used: list[tuple[float, int]] = field(default_factory=list)
    late_s: float = 0.0

    @property
    def wall_s(self) -> float:
        """From the first creation to the last end."""
        return max(life.finished_s or 0.0 for life in self.lives)

    def used_core_s(self) -> float:
        """Cores in use, over time."""
        return sum(
            (then - now) * cores
            for (now, cores), (then, _) in zip(self.used, [*self.used[1:], (self.wall_s, 0)], strict=True)
        )


class Player:
    """``await Player(...).run()`` until every workload has ended."""

    def __init__(self, plan: Plan, raw: Raw, *, finishes: bool = True) -> None:
        self._plan = plan
        self._raw = raw
        self._finishes = finishes
        self._pods: dict[str, Life] = {}
        self._creations: asyncio.Queue[Life] = asyncio.Queue()
        self._endings: asyncio.Queue[Life] = asyncio.Queue()
        self._cores = 0
        self._left = len(plan.arrivals)
        self._done = asyncio.Event()
        self.log = Log([Life(arrival, number) for number, arrival in enumerate(plan.arrivals)])

    @property
    def progress(self) -> str:
        """One line for a person who waits."""
        created = sum(life.created_s is not None for life in self.log.lives)
        evicted = sum(life.evictions for life in self.log.lives)
        ended = len(self.log.lives) - self._left
        return f"{created} created, {ended} ended, {evicted} evictions, {self._cores} of {self._plan.nominal} cores"

    @property
    def cores(self) -> int:
        """Cores of those that are admitted and have not ended."""
        return self._cores

    async def run(self, *, timeout_s: float) -> Log:
        """Live through the plan. Raises: TimeoutError, with how far it came."""
        version = await self._raw.version(PODS)
        self._began = time.monotonic()
        tasks = [asyncio.create_task(self._watch(version)), asyncio.create_task(self._submit())]
        tasks += [asyncio.create_task(self._create()) for _ in range(CREATIONS_IN_FLIGHT)]
        tasks += [asyncio.create_task(self._end()) for _ in range(ENDINGS_IN_FLIGHT)]
        done = asyncio.create_task(self._done.wait())
        try:
            endless = [task for task in tasks if task is not tasks[1]]  # all but the submission
            ended, _ = await asyncio.wait([*endless, done], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if not ended:
                raise TimeoutError(f"not through after {timeout_s:g} s: {self.progress}")
            for task in ended:
                task.result()
            return self.log
        finally:
            for task in (*tasks, done):
                task.cancel()
            await asyncio.gather(*tasks, done, return_exceptions=True)

    def _now_s(self) -> float:
        return time.monotonic() - self._began

    async def _submit(self) -> None:
        waiting = deque(self.log.lives)
        while waiting:
            now_s = self._now_s()
            while waiting and waiting[0].arrival.at_s <= now_s:
                self._creations.put_nowait(waiting.popleft())
            if waiting:
                await asyncio.sleep(max(0.0, waiting[0].arrival.at_s - self._now_s()))

    async def _create(self) -> None:
        while True:
            life = await self._creations.get()
            kind = life.arrival.kind
            annotations = {} if self._finishes else {f"{PREFIX}/run-seconds": f"{kind.run_s:g}"}
            pod = queued_pod(
                life.pod,
                queue=self._plan.queues[life.arrival.queue].name,
                cpu=kind.cpu,
                priority_class=kind.name,
                annotations=annotations,
            )
            self._pods[life.pod] = life
            if life.created_s is None:
                life.created_s = self._now_s()
                self.log.late_s = max(self.log.late_s, life.created_s - life.arrival.at_s)
            await self._raw.must("POST", PODS, orjson.dumps(pod))

    async def _watch(self, version: str) -> None:
        async for kind, pod in self._raw.watch(PODS, version):
            life = self._pods.get(pod.metadata.name)
            if life is None or life.pod != pod.metadata.name:
                continue
            if kind == "DELETED":
                self._gone(life)
            elif pod.status.phase in ("Succeeded", "Failed"):
                self._ended(life)
            elif not pod.gated and life.since_s is None:
                self._admitted(life, pod)

    def _admitted(self, life: Life, pod: Seen) -> None:
        life.uid, life.since_s = pod.metadata.uid, self._now_s()
        if life.admitted_s is None:
            life.admitted_s = life.since_s
        self._use(life.arrival.kind.cpu)
        if self._finishes:
            asyncio.get_running_loop().call_later(life.arrival.kind.run_s, self._end_if_same, life, life.attempt)

    def _end_if_same(self, life: Life, attempt: int) -> None:
        if life.attempt == attempt:
            self._endings.put_nowait(life)

    async def _end(self) -> None:
        while True:
            life = await self._endings.get()
            body = orjson.dumps({"metadata": {"uid": life.uid}, "status": {"phase": "Succeeded"}})
            status = await self._raw.send("PATCH", f"{PODS}/{life.pod}/status", body, kind=STRATEGIC)
            assert status in (200, 404, 409, 422), status  # evicted meanwhile: the watch will tell

    def _ended(self, life: Life) -> None:
        if life.finished_s is None:
            life.finished_s = self._now_s()
            self._stop(life)
            self._left -= 1
            if self._left == 0:
                self._done.set()

    def _gone(self, life: Life) -> None:
        if life.finished_s is not None:
            return
        self._stop(life)
        life.evictions += 1
        life.attempt += 1
        self._creations.put_nowait(life)

    def _stop(self, life: Life) -> None:
        if life.since_s is not None:
            life.since_s = None
            self._use(-life.arrival.kind.cpu)

    def _use(self, cores: int) -> None:
        self._cores += cores
        self.log.used.append((self._now_s(), self._cores))
