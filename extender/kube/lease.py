"""Leadership by a Lease: one replica writes, and knows when it may not any more.

The holder renews every 2 s; whoever sees the same record for its whole duration (15 s on the watcher's own clock) may
take it. The fence is narrower: we may write only within 10 s after the *start* of our last successful renewal, by a
clock that runs while the process or the machine is stopped. So a paused leader finds its fence closed when it goes on,
before anything else happens. Wall clocks are written for people and never compared.

A lease that was deleted under its holder is written anew by the holder; whoever saw it held waits as long as if it were
still there.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import msgspec

from extender.clock import steady_clock
from extender.kube.client import PatchType
from extender.kube.writes import FIELD_MANAGER, micro_timestamp
from extender.model.errors import UNREADABLE, ExtenderError, Gone

LEASE_DURATION_S: Final = 15
RENEW_DEADLINE_S: Final = 10.0
RETRY_PERIOD_S: Final = 2.0
REQUEST_S_MAX: Final = 5.0
RELEASE_S_MAX: Final = 2.0
JITTER: Final = 0.2


class _Meta(msgspec.Struct, rename="camel", omit_defaults=True):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _Spec(msgspec.Struct, rename="camel", omit_defaults=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(msgspec.Struct, rename="camel", omit_defaults=True):
    """The fields of a Lease that leader election uses."""

    api_version: str = ""
    kind: str = ""
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)


class Api(Protocol):
    """What leader election needs of the client."""

    async def get(self, path: str, *, timeout_s: float | None = None) -> bytes:
        """Read an object."""

    async def post(self, path: str, body: bytes, *, timeout_s: float | None = None) -> bytes:
        """Create an object."""

    async def patch(
        self, path: str, body: bytes, *, kind: PatchType, field_manager: str = "", timeout_s: float | None = None
    ) -> bytes:
        """Patch an object."""


class Timing(msgspec.Struct, frozen=True):
    """Lease duration, renew deadline and retry period in seconds; each above the next."""

    duration_s: int = LEASE_DURATION_S
    renew_deadline_s: float = RENEW_DEADLINE_S
    retry_period_s: float = RETRY_PERIOD_S


class Leader:
    """Runs for office until cancelled; ``release`` gives the lease back.

    ``is_leader`` is the fence: cheap, to be asked before every write. ``on_change`` is told True and False in turn, and
    of the end of a term at the moment it ends; no term begins without the end of the one before having been told.
    ``holder`` is whom the lease names, ``problem`` why the last attempt failed; ``report`` is told when that changes.
    """

    def __init__(
        self,
        api: Api,
        *,
        identity: str,
        namespace: str,
        name: str,
        on_change: Callable[[bool], None],
        report: Callable[[str], None] = lambda problem: None,
        timing: Timing = Timing(),  # noqa: B008 - frozen
        clock: Callable[[], float] = steady_clock,
        wall_clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        randomness: Callable[[], float] = random.random,
    ) -> None:
        self.holder = ""
        self.problem = ""
        self.transitions = 0
        self._api = api
        self._identity = identity
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._meta = _Meta(name=name, namespace=namespace)
        self._on_change = on_change
        self._report = report
        self._reported = ""
        self._timing = timing
        self._clock = clock
        self._wall_clock = wall_clock
        self._sleep = sleep
        self._randomness = randomness
        self._lease: Lease | None = None
        self._seen_version = ""
        self._seen_s = 0.0
        self._renewed_s: float | None = None
        self._led = False

    def is_leader(self) -> bool:
        """Whether we may write now."""
        return self._right_s() > 0

    async def run(self) -> None:
        """Run for office until cancelled."""
        while True:
            await self._step()
            self._announce()
            await self._sleep(self._pause_s())
            self._announce()

    def _pause_s(self) -> float:
        """Until the next attempt, or until the fence closes if that comes first: its end is told at once."""
        pause_s = self._timing.retry_period_s * (1 + JITTER * self._randomness())
        return min(pause_s, self._right_s()) if self.is_leader() else pause_s

    def _right_s(self) -> float:
        """How much longer we may write; 0 or less: not any more."""
        if self._renewed_s is None:
            return 0.0
        return self._renewed_s + self._timing.renew_deadline_s - self._clock()

    def _announce(self) -> None:
        if self.problem != self._reported:
            self._reported = self.problem
            self._report(self.problem)
        leads = self.is_leader()
        if leads != self._led:
            self._led = leads
            self._on_change(leads)

    async def _step(self) -> None:
        """One attempt to renew, or to get, the lease. Failures are noted and tried again at the next step."""
        try:
            if self.is_leader() and self._lease is not None:
                try:
                    await self._write(self._lease, taken=False)
                    self.problem = ""
                    return
                except Gone:
                    await self._create()  # deleted by hand; nobody else may have it yet
                    self.problem = ""
                    return
                except ExtenderError as error:
                    if error.status != 409:
                        raise
                    # Somebody wrote it: read who holds it now before anything else.
            await self._look()
            self.problem = ""
        except ExtenderError as error:
            self.problem = str(error)
        except UNREADABLE as error:
            self.problem = f"the lease cannot be read: {type(error).__name__}"

    async def _look(self) -> None:
        """Read the lease and take it if it is nobody's, ours, or has not moved for its duration."""
        try:
            lease = _LEASE.decode(await self._api.get(f"{self._path}/{self._meta.name}", timeout_s=self._time_left_s()))
        except Gone:
            if not self._held_by_another():
                await self._create()
            return
        now_s = self._clock()
        self._lease = lease
        if lease.metadata.resource_version != self._seen_version:
            self._seen_version, self._seen_s = lease.metadata.resource_version, now_s
        self.holder = lease.spec.holder_identity or ""
        self.transitions = lease.spec.lease_transitions or 0
        if self.holder == self._identity:
            await self._write(lease, taken=False)
            return
        self._renewed_s = None
        if not self._held_by_another():
            await self._write(lease, taken=True)

    def _held_by_another(self) -> bool:
        """Whether another one may write still: it held the lease when that last moved, less than its duration ago."""
        if self._lease is None or self.holder in ("", self._identity):
            return False
        duration_s = self._lease.spec.lease_duration_seconds or self._timing.duration_s
        return self._clock() < self._seen_s + duration_s

    async def _create(self) -> None:
        began_s, now = self._clock(), micro_timestamp(self._wall_clock())
        spec = _Spec(self._identity, self._timing.duration_s, now, now, 0)
        body = _encode(Lease(metadata=self._meta, spec=spec))
        self._hold(_LEASE.decode(await self._api.post(self._path, body, timeout_s=self._time_left_s())), began_s)

    async def _write(self, lease: Lease, *, taken: bool) -> None:
        """Write us as the holder. Raises: Conflict, when somebody else wrote since we read."""
        began_s, now = self._clock(), micro_timestamp(self._wall_clock())
        spec = _Spec(
            holder_identity=self._identity,
            lease_duration_seconds=self._timing.duration_s,
            acquire_time=now if taken else lease.spec.acquire_time or now,
            renew_time=now,
            lease_transitions=(lease.spec.lease_transitions or 0) + (1 if taken else 0),
        )
        self._hold(await self._put(lease, spec, timeout_s=self._time_left_s()), began_s)

    def _hold(self, lease: Lease, began_s: float) -> None:
        self._lease = lease
        self._seen_version, self._seen_s = lease.metadata.resource_version, began_s
        self._announce()  # a term that ran out while we asked has ended, although nobody else came between
        self._renewed_s = began_s
        self.holder, self.transitions = self._identity, lease.spec.lease_transitions or 0

    async def _put(self, lease: Lease, spec: _Spec, *, timeout_s: float) -> Lease:
        # A merge patch, so that labels and fields of others stay; the version in it guards it as it would a PUT.
        body = _encode(Lease(metadata=lease.metadata, spec=spec))
        path = f"{self._path}/{self._meta.name}"
        answer = await self._api.patch(
            path, body, kind=PatchType.MERGE, field_manager=FIELD_MANAGER, timeout_s=timeout_s
        )
        return _LEASE.decode(answer)

    def _time_left_s(self) -> float:
        """How long a request may last: what is left of the deadline, so that none outlives our right to lead."""
        left_s = self._right_s()
        return min(REQUEST_S_MAX, left_s) if left_s > 0 else REQUEST_S_MAX

    async def release(self) -> None:
        """Give the lease back, so that a successor need not wait. First of all, the fence closes.

        Only after ``run`` has ended, and only when no write of ours can be on its way any more.
        """
        held = self._lease if self.is_leader() else None
        self._renewed_s = None
        self._announce()
        if held is None:
            return
        now = micro_timestamp(self._wall_clock())
        spec = _Spec("", 1, held.spec.acquire_time, now, held.spec.lease_transitions or 0)
        try:
            self._lease = await self._put(held, spec, timeout_s=RELEASE_S_MAX)
            self.holder = ""
        except (ExtenderError, *UNREADABLE) as error:
            self.problem = f"the lease was not released: {error}"


def _encode(lease: Lease) -> bytes:
    lease.api_version, lease.kind = "coordination.k8s.io/v1", "Lease"
    return _ENCODER.encode(lease)


_LEASE = msgspec.json.Decoder(Lease)
_ENCODER = msgspec.json.Encoder()
