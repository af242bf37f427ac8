"""What time alone changes: groups that never complete, pods that never get ready, pods that ran long enough, back-offs.

No clock here either: facts are noted as they come, and ``due`` is asked with the time. Only deadlines are kept, in a
heap, so a question costs what has come due. Source: pods specification, section 8; ADR 0051.
"""

import heapq
from enum import StrEnum
from itertools import islice

import msgspec

from extender.model.names import WorkloadUid

RETRY_MIN_MS = 1_000
RETRY_MAX_MS = 30_000
COUNTS_MAX = 10_000
CHANGES_MAX = 100
"""How many changes of workloads one question looks at: a ms or so, also when a new leader asks about all."""


class ReadyTimes(msgspec.Struct, frozen=True):
    """How long an admitted workload may take until its pods are ready. Milliseconds.

    ``recovery_ms`` 0: one that was ready may be unready for ever. ``limit`` None: it is put back without end.
    ``keeps_place``: what is put back stands in line where it stood, not behind those that came meanwhile.
    """

    timeout_ms: int
    recovery_ms: int
    backoff_base_ms: int = 60_000
    backoff_max_ms: int = 3_600_000
    limit: int | None = None
    keeps_place: bool = False


class Times(msgspec.Struct, frozen=True):
    """What is timed. ``group_ms`` 0: nobody is told of a group that does not complete. ``ready`` None: off."""

    group_ms: int = 300_000
    ready: ReadyTimes | None = None


class Clocked(msgspec.Struct, frozen=True):
    """What the clock has to know of a workload.

    ``incomplete_ms``: when the newest pod of an incomplete group was created. ``admitted_ms``: since when it holds
    quota, None if it waits or is told to stop. ``run_s_max`` 0: it may run for ever.
    """

    incomplete_ms: int | None = None
    admitted_ms: int | None = None
    ready: bool = True
    run_s_max: int = 0


class What(StrEnum):
    """What has come due."""

    GROUP_INCOMPLETE = "group incomplete"
    NOT_STARTED = "not started"
    NOT_RECOVERED = "not recovered"
    RAN_TOO_LONG = "ran too long"
    RETRY = "retry"


class Due(msgspec.Struct, frozen=True):
    """Something has come due. ``key`` is a workload's UID, for RETRY whatever was given."""

    what: What
    key: str


class _Entry(msgspec.Struct):
    """``since_ms`` and ``left_ms``: when its last admission began and ended; ``past_ms``: what it ran before that."""

    clocked: Clocked
    was_ready: bool = False
    since_ms: int | None = None
    left_ms: int | None = None
    past_ms: int = 0
    told_ms: int | None = None
    deadlines: dict[What, int] = {}


class Timers:
    """All deadlines."""

    def __init__(self, times: Times) -> None:
        self.times = times
        self._changed: dict[WorkloadUid, Clocked | None] = {}
        self._left_over = False
        self._entries: dict[WorkloadUid, _Entry] = {}
        self._heap: list[tuple[int, What, str]] = []
        self._retries: dict[str, int] = {}
        self._counts: dict[str, int] = {}

    def note(self, uid: WorkloadUid, clocked: Clocked | None) -> None:
        """*uid* is so from now on (None: gone); its deadlines begin with the next question."""
        if clocked is None:
            self._counts.pop(uid, None)
        if clocked is None and uid not in self._entries:
            self._changed.pop(uid, None)
        else:
            self._changed[uid] = clocked

    def due(self, now_ms: int) -> list[Due]:
        """What has come due by now, each once."""
        for uid in list(islice(self._changed, CHANGES_MAX)):
            self._take(uid, self._changed.pop(uid), now_ms)
        self._left_over = bool(self._changed)
        found = []
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, what, key = heapq.heappop(self._heap)
            if what is What.RETRY:
                if self._retries.get(key) == at_ms:
                    del self._retries[key]
                    found.append(Due(what, key))
                continue
            entry = self._entries.get(WorkloadUid(key))
            if entry is not None and entry.deadlines.get(what) == at_ms:
                del entry.deadlines[what]
                if what is What.RAN_TOO_LONG:  # who is let in again after that has all of its time
                    entry.since_ms, entry.past_ms = None, 0
                found.append(Due(what, key))
        return found

    def next_due_ms(self) -> int | None:
        """When ``due`` is worth asking again, 0: at once; None: when something is noted."""
        if self._left_over:
            return 0
        return self._heap[0][0] if self._heap else None

    # --- deadlines of workloads ---

    def _take(self, uid: WorkloadUid, clocked: Clocked | None, now_ms: int) -> None:
        if clocked is None:
            self._entries.pop(uid, None)
            return
        entry = self._entries.get(uid)
        if entry is None:
            entry = self._entries[uid] = _Entry(clocked)
        entry.clocked = clocked
        self._note_admission(entry, now_ms)
        self._plan(uid, entry, now_ms)

    @staticmethod
    def _note_admission(entry: _Entry, now_ms: int) -> None:
        admitted_ms = entry.clocked.admitted_ms
        if admitted_ms is None:
            entry.left_ms = entry.left_ms or now_ms
            return
        if admitted_ms != entry.since_ms:
            if entry.since_ms is not None:
                entry.past_ms += max(0, (entry.left_ms or now_ms) - entry.since_ms)
            entry.since_ms, entry.was_ready = admitted_ms, False
        entry.left_ms = None
        entry.was_ready = entry.was_ready or entry.clocked.ready

    def _plan(self, uid: WorkloadUid, entry: _Entry, now_ms: int) -> None:
        before, wanted = entry.deadlines, self._wanted(entry, now_ms)
        if What.NOT_RECOVERED in wanted and What.NOT_RECOVERED in before:
            wanted[What.NOT_RECOVERED] = before[What.NOT_RECOVERED]  # unready since then, not since this change
        entry.deadlines = wanted
        for what, at_ms in wanted.items():
            if before.get(what) != at_ms:
                heapq.heappush(self._heap, (at_ms, what, uid))

    def _wanted(self, entry: _Entry, now_ms: int) -> dict[What, int]:
        clocked, ready = entry.clocked, self.times.ready
        wanted = {}
        if clocked.incomplete_ms is not None and self.times.group_ms and entry.told_ms != clocked.incomplete_ms:
            entry.told_ms = clocked.incomplete_ms
            wanted[What.GROUP_INCOMPLETE] = clocked.incomplete_ms + self.times.group_ms
        elif clocked.incomplete_ms is not None and What.GROUP_INCOMPLETE in entry.deadlines:
            wanted[What.GROUP_INCOMPLETE] = entry.deadlines[What.GROUP_INCOMPLETE]
        if clocked.admitted_ms is None:
            return wanted
        if clocked.run_s_max:
            wanted[What.RAN_TOO_LONG] = clocked.admitted_ms + clocked.run_s_max * 1000 - entry.past_ms
        if ready is not None and not clocked.ready:
            if not entry.was_ready:
                wanted[What.NOT_STARTED] = self._start_by(clocked.admitted_ms, ready, now_ms)
            elif ready.recovery_ms:
                wanted[What.NOT_RECOVERED] = now_ms + ready.recovery_ms
        return wanted

    @staticmethod
    def _start_by(admitted_ms: int, ready: ReadyTimes, now_ms: int) -> int:
        """When it has to be ready.

        One that is met unready long after its admission, by a new leader, may have been ready in between.
        """
        by_ms = admitted_ms + ready.timeout_ms
        return by_ms if by_ms > now_ms else now_ms + (ready.recovery_ms or ready.timeout_ms)

    # --- repetition ---

    def retry_at(self, key: str, at_ms: int) -> None:
        """RETRY *key* is due at that time; an earlier plan for it is void."""
        self._retries[key] = at_ms
        heapq.heappush(self._heap, (at_ms, What.RETRY, key))

    def delay_ms(self, key: str) -> int:
        """*key* has failed once more: how long to wait before it is tried again, 1 s, 2 s and so on to 30 s."""
        return min(RETRY_MIN_MS << min(self.count(key), 10), RETRY_MAX_MS)

    def count(self, key: str) -> int:
        """Count one more of *key*; how many there were before."""
        before = self._counts.pop(key, 0)
        self._counts[key] = before + 1
        if len(self._counts) > COUNTS_MAX:
            del self._counts[next(iter(self._counts))]
        return before

    def succeeded(self, key: str) -> None:
        """Count from the beginning again."""
        self._counts.pop(key, None)

    def backoff_ms(self, attempt: int) -> int:
        """How long to wait before *attempt*, the first being 1. Follows: pods specification, section 8."""
        ready = self.times.ready
        if ready is None:
            return 0
        return min(ready.backoff_base_ms << min(max(attempt, 1) - 1, 30), ready.backoff_max_ms)
