"""Carries out effects: so many requests at once, each fenced, each tried within bounds, each outcome told.

What an answer means for what comes next is ``judge``; the rest is plumbing. After a request without an answer the
outcome is unknown: it is sent again with the same guard, and if that meets a conflict, the pod is read once to see
whether the first attempt was ours.
"""

import asyncio
import math
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from extender.kube.client import PatchType
from extender.kube.outbox import BEGUN_AT_ONCE_MAX, Job, Outbox, Pace, Window, retry_in_s
from extender.kube.wire import MetaOnlyWire
from extender.kube.writes import FIELD_MANAGER, pod_path, request_for
from extender.kube.writes_jobs import job_path
from extender.model.effects import AdoptPod, Effect, EvictPod, SetPodCondition, UngatePod
from extender.model.errors import (
    UNREADABLE,
    Conflict,
    ExtenderError,
    Gone,
    TransientError,
    Unreachable,
)
from extender.model.jobs import GrowJob, SetJobCondition, StartJob, StopJob
from extender.model.names import PodUid
from extender.model.pods import ADMISSION_ANNOTATION
from extender.turns import Turns

IN_FLIGHT_MAX: Final = 32
WRITE_TIMEOUT_S: Final = 5.0
STRAY_S_MAX: Final = 15.0
"""How long a request may be on its way after its sender has hung up: as long as the lease lasts."""
UID_PRECONDITION: Final = ("UID in precondition", "UID in the precondition")
UID_IMMUTABLE: Final = "metadata.uid: Invalid value"
"""What the API server says, to an eviction (409) and to a PATCH (422), when the pod of that name is another one."""
STATUSES_KNOWN_MAX: Final = 100_000


class OutcomeKind(StrEnum):
    """How a write ended."""

    DONE = "done"
    CONFLICT = "conflict"
    GONE = "gone"
    INVALID = "invalid"
    EXPIRED = "expired"
    FENCED = "fenced"
    DROPPED = "dropped"


class Outcome(msgspec.Struct, frozen=True):
    """How a write ended, and why if it was not carried out."""

    kind: OutcomeKind
    cause: str = ""

    @property
    def done(self) -> bool:
        """Whether what was asked is so now."""
        return self.kind is OutcomeKind.DONE


class Verdict(StrEnum):
    """What an error means for a write."""

    DONE = "done"
    REFUSED = "refused"
    AGAIN = "again"
    READ_BACK = "read back"


def judge(job: Job, error: ExtenderError) -> Verdict:
    """What *error* means for *job*.

    A pod that is gone, or of another UID, is as evicted as can be, and a Job that is gone as stopped. A conflict is for
    the engine to decide anew, but after an attempt without an answer it may be our own write that we meet.
    """
    if isinstance(job.effect, StopJob | GrowJob) and isinstance(error, Conflict):
        return Verdict.AGAIN  # not guarded by version: the status moved in the middle
    evicts = isinstance(job.effect, EvictPod)
    if isinstance(error, Gone):
        return Verdict.DONE if evicts or isinstance(job.effect, StopJob) else Verdict.REFUSED
    if isinstance(error, Conflict):
        if evicts:
            return Verdict.DONE if any(text in str(error) for text in UID_PRECONDITION) else Verdict.AGAIN
        if isinstance(job.effect, UngatePod | AdoptPod | StartJob):
            return Verdict.READ_BACK if job.unknown else Verdict.REFUSED
        return Verdict.REFUSED
    if isinstance(error, TransientError) or error.status == 401 or _lacks_a_right(error):
        return Verdict.AGAIN
    return Verdict.REFUSED


def _lacks_a_right(error: ExtenderError) -> bool:
    """Whether RBAC said no, rather than a policy about this object.

    An API server that starts knows no rights yet. To take such a no for an answer would let others pass by.
    """
    return error.status == 403 and " cannot " in str(error) and " resource " in str(error)


def refusal(error: ExtenderError) -> OutcomeKind:
    """The kind of outcome that *error* stands for."""
    if isinstance(error, Conflict):
        return OutcomeKind.CONFLICT
    if isinstance(error, Gone) or (error.status == 422 and UID_IMMUTABLE in str(error)):
        return OutcomeKind.GONE
    return OutcomeKind.EXPIRED if isinstance(error, TransientError) else OutcomeKind.INVALID


class Api(Protocol):
    """What the writer needs of the client."""

    async def get(self, path: str, *, accept: str = "") -> bytes:
        """Read an object."""

    async def post(self, path: str, body: bytes, *, timeout_s: float | None = None) -> bytes:
        """Create an object."""

    async def patch(
        self,
        path: str,
        body: bytes,
        *,
        kind: PatchType,
        field_manager: str = "",
        force: bool = False,
        partial: bool = False,
        timeout_s: float | None = None,
    ) -> bytes:
        """Patch an object."""


OnOutcome = Callable[[Effect, Outcome], None]


class Counters(msgspec.Struct):
    """How many writes were sent, of which kind (the effect's name), and how they ended."""

    sent: int = 0
    sent_by_kind: dict[str, int] = msgspec.field(default_factory=dict)
    retried: int = 0
    outcomes: dict[OutcomeKind, int] = msgspec.field(default_factory=dict)


class Writer:
    """Submit effects at any time; ``run`` carries them out until cancelled; every effect gets one outcome.

    ``has_ended`` is asked before an eviction: one that waited until its pod finished by itself would delete a pod whose
    logs somebody wants to read. ``may_write`` is asked right before each request. A request lasts at most 5 s, the time
    between the end of our right to write and the first moment at which somebody else may have it.
    """

    def __init__(
        self,
        api: Api,
        on_outcome: OnOutcome,
        *,
        may_write: Callable[[], bool],
        has_ended: Callable[[PodUid], bool] = lambda _: False,
        queue_api: str = "kueue.x-k8s.io/v1beta2",
        identity: str = FIELD_MANAGER,
        request_s_max: float = WRITE_TIMEOUT_S,
        in_flight_max: int = IN_FLIGHT_MAX,
        turns: Turns | None = None,
        pace: Pace = Pace(),  # noqa: B008 - frozen
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        randomness: Callable[[], float] = random.random,
    ) -> None:
        self.counters = Counters()
        self._api = api
        self._on_outcome = on_outcome
        self._may_write = may_write
        self._has_ended = has_ended
        self._queue_api = queue_api
        self._identity = identity
        self._request_s_max = request_s_max
        self._window = Window(in_flight_max)
        self._turns = turns or Turns()
        self._outbox = Outbox(pace)
        self._clock = clock
        self._wall_clock = wall_clock
        self._sleep = sleep
        self._randomness = randomness
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._in_flight = 0
        self._stray_s = -math.inf
        self._statuses: dict[str, bool] = {}
        self._pods_told: deque[PodUid] = deque()

    def __len__(self) -> int:
        """How many writes have not ended."""
        return len(self._outbox) + self._in_flight

    @property
    def settled(self) -> bool:
        """Whether every admission, adoption and eviction has ended, and none without our knowing how a while ago.

        One whose answer we did not get may be on its way still; after ``STRAY_S_MAX`` nobody counts on that any more.
        """
        return not self._outbox.open_acts and self._clock() - self._stray_s > STRAY_S_MAX

    def submit(self, effect: Effect) -> None:
        """Take *effect*; never waits. What it makes pointless gets its outcome at once."""
        for pointless, cause in self._outbox.put(effect, self._clock()):
            self._tell(pointless, Outcome(OutcomeKind.DROPPED, cause))
        if self._outbox.open_acts:
            self._idle.clear()
        self._wake.set()

    def recall(self) -> None:
        """We lead no more: what waits is not sent, even if we lead again, for it was decided on what was known before.

        What is in flight ends by itself, within the time limit of a request.
        """
        self._outbox.recall()
        self._wake.set()

    async def drain(self) -> None:
        """Wait until every admission and eviction has ended. The caller bounds the time."""
        await self._idle.wait()

    async def run(self) -> None:
        """Carry out effects until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._wake.clear()
                now_s = self._clock()
                while self._in_flight < self._window.size(now_s):
                    async with self._turns:
                        now_s = self._clock()
                        if not self._begin(group, now_s):
                            break
                await self._rest(now_s)

    def _begin(self, group: asyncio.TaskGroup, now_s: float) -> bool:
        """Begin with the next few writes that may be sent now; whether there was one."""
        for begun in range(BEGUN_AT_ONCE_MAX):
            job = self._outbox.take(now_s) if self._in_flight < self._window.size(now_s) else None
            if job is None:
                return begun > 0
            self._in_flight += 1
            group.create_task(self._carry_out(job))
        return True

    async def _rest(self, taken_s: float) -> None:
        """Sleep until there may be something to send. *taken_s* is when there was nothing.

        Asked of a later moment, a token that came in between would count as one that had been there, and what waits
        for it would wait for ever.
        """
        due_s = self._outbox.due_in_s(taken_s) if self._in_flight < self._window.size(taken_s) else None
        if due_s is None:
            await self._wake.wait()
            return
        sleeper = asyncio.ensure_future(self._sleep(due_s))
        waker = asyncio.ensure_future(self._wake.wait())
        try:
            await asyncio.wait((sleeper, waker), return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeper.cancel()
            waker.cancel()

    async def _carry_out(self, job: Job) -> None:
        try:
            outcome = await self._attempt(job)
        finally:
            self._in_flight -= 1
            self._window.answered(self._clock())
        if outcome is None:
            self.counters.retried += 1
        else:
            self._outbox.finish(job)
            self._tell(job.effect, outcome)
        if not self._outbox.open_acts:
            self._idle.set()
        self._wake.set()

    async def _attempt(self, job: Job) -> Outcome | None:
        """Send once. None: it will be tried again."""
        if self._outbox.is_void(job) or not self._may_write():
            if job.unknown:
                self._stray_s = self._clock()
            return Outcome(OutcomeKind.FENCED, "not the leader")
        if isinstance(job.effect, EvictPod) and self._has_ended(job.effect.uid):
            return Outcome(OutcomeKind.DONE)
        try:
            await self._send(job)
        except ExtenderError as error:
            return await self._after(job, error)
        if isinstance(job.effect, SetPodCondition | SetJobCondition):
            self._remember(job.effect)
        return Outcome(OutcomeKind.DONE)

    async def _after(self, job: Job, error: ExtenderError) -> Outcome | None:
        verdict = judge(job, error)
        if verdict is Verdict.DONE:
            return Outcome(OutcomeKind.DONE)
        if verdict is Verdict.READ_BACK:
            written = await self._is_written(job)
            if written is not None:
                return Outcome(OutcomeKind.DONE) if written else Outcome(OutcomeKind.CONFLICT, str(error))
        elif verdict is Verdict.REFUSED:
            return Outcome(refusal(error), str(error))
        job.unknown = job.unknown or isinstance(error, Unreachable)
        now_s = self._clock()
        at_s = now_s + retry_in_s(job, error, self._randomness())
        if job.deadline_s is not None and at_s > job.deadline_s:
            written = await self._is_written(job) if job.unknown else False
            if written is not None:  # else it may stand there: given up as refused, its room would be given twice
                return (
                    Outcome(OutcomeKind.DONE)
                    if written
                    else Outcome(OutcomeKind.EXPIRED, f"gave up after {job.attempts} attempts: {error}")
                )
        self._outbox.again(job, at_s)
        return None

    async def _send(self, job: Job) -> None:
        effect = job.effect
        changes = (
            isinstance(effect, SetPodCondition | SetJobCondition)
            and self._statuses.get(effect.uid) is not effect.status
        )
        request = request_for(
            effect,
            now_s=self._wall_clock(),
            changes_status=changes,
            queue_api=self._queue_api,
            identity=self._identity,
        )
        self.counters.sent += 1
        kind = type(effect).__name__
        self.counters.sent_by_kind[kind] = self.counters.sent_by_kind.get(kind, 0) + 1
        if request.patch is None:
            await self._api.post(request.path, request.body, timeout_s=self._request_s_max)
        else:
            await self._api.patch(
                request.path,
                request.body,
                kind=request.patch,
                field_manager=FIELD_MANAGER,
                force=request.force,
                partial=True,
                timeout_s=self._request_s_max,
            )

    async def _is_written(self, job: Job) -> bool | None:
        """Whether an admission stands on its pod as we wrote it; None when that cannot be told now."""
        effect = job.effect
        if not isinstance(effect, UngatePod | StartJob):
            return False
        path = job_path(effect.ref) if isinstance(effect, StartJob) else pod_path(effect.namespace, effect.name)
        try:
            meta = _META.decode(await self._api.get(path)).metadata
        except Gone:
            return False
        except (ExtenderError, *UNREADABLE):
            return None
        return meta.uid == effect.uid and (meta.annotations or {}).get(ADMISSION_ANNOTATION) == effect.admission

    def _remember(self, effect: SetPodCondition | SetJobCondition) -> None:
        known = self._statuses
        if isinstance(effect, SetPodCondition) and effect.uid not in known:
            self._pods_told.append(effect.uid)
        known[effect.uid] = effect.status
        for _ in range(min(2, len(self._pods_told) - 1)):  # two looks for each that comes: none piles up
            uid = self._pods_told.popleft()
            if self._has_ended(uid):
                known.pop(uid, None)
            else:
                self._pods_told.append(uid)
        if len(known) > STATUSES_KNOWN_MAX:
            del known[next(iter(known))]

    def _tell(self, effect: Effect, outcome: Outcome) -> None:
        self.counters.outcomes[outcome.kind] = self.counters.outcomes.get(outcome.kind, 0) + 1
        self._on_outcome(effect, outcome)


_META = msgspec.json.Decoder(MetaOnlyWire)
