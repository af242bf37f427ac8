"""When to write on a pod why it waits: often enough to be true, seldom enough never to be a storm.

The first reason of a workload, and one that needs an edit by its owner, are due at once; another code when it has held
for 5 s; the same code with other numbers after 10 minutes. Only the newest reason of a workload is kept, and a token
bucket bounds the writes a second whatever happens. Source: planning specification, section 1, "No write storm".
"""

import heapq

import msgspec

from extender.model.names import WorkloadUid
from extender.model.reasons import Reason, ReasonCode

CODE_HELD_MS = 5_000
NUMBERS_MS = 600_000
WRITES_PER_S = 5
BURST = 20

NEEDS_AN_EDIT = frozenset(
    {
        ReasonCode.QUEUE_NOT_FOUND,
        ReasonCode.QUEUE_INACTIVE,
        ReasonCode.NAMESPACE_NOT_ALLOWED,
        ReasonCode.REQUEST_INVALID,
        ReasonCode.RESOURCE_NOT_COVERED,
        ReasonCode.NO_MATCHING_FLAVOR,
        ReasonCode.EXCEEDS_MAX_QUOTA,
    }
)


class _Entry(msgspec.Struct):
    current: Reason | None
    since_ms: int
    due_ms: int | None = None
    written: Reason | None = None
    written_ms: int = 0
    is_written: bool = False


class Conditions:
    """The reasons that hold now, what was written of them, and what is due."""

    def __init__(self) -> None:
        self._entries: dict[WorkloadUid, _Entry] = {}
        self._due: list[tuple[int, WorkloadUid]] = []
        self._tokens: float = BURST
        self._refilled_ms: int | None = None

    def note(self, uid: WorkloadUid, why: Reason | None, now_ms: int) -> None:
        """*why* holds from now on; None: admitted. An admission is written only if a reason was."""
        entry = self._entries.get(uid)
        if entry is None:
            if why is None:
                return
            entry = self._entries[uid] = _Entry(why, now_ms)
        elif entry.current == why:
            return
        elif _code(entry.current) != _code(why):
            entry.since_ms = now_ms
        entry.current = why
        if why is None and not entry.is_written:
            del self._entries[uid]
            return
        self._plan(uid, entry, now_ms)

    def _plan(self, uid: WorkloadUid, entry: _Entry, now_ms: int) -> None:
        if entry.is_written and entry.written == entry.current:
            entry.due_ms = None
            return
        if not entry.is_written or entry.current is None or entry.current.code in NEEDS_AN_EDIT:
            due_ms = now_ms
        elif _code(entry.written) != entry.current.code:
            due_ms = entry.since_ms + CODE_HELD_MS
        else:
            due_ms = entry.written_ms + NUMBERS_MS
        entry.due_ms = due_ms
        heapq.heappush(self._due, (due_ms, uid))

    def drop(self, uid: WorkloadUid) -> None:
        """The workload is gone."""
        self._entries.pop(uid, None)

    def due(self, now_ms: int) -> list[tuple[WorkloadUid, Reason | None]]:
        """What to write now, at most what the token bucket allows."""
        self._refill(now_ms)
        found: list[tuple[WorkloadUid, Reason | None]] = []
        while self._tokens >= 1 and self._due and self._due[0][0] <= now_ms:
            due_ms, uid = heapq.heappop(self._due)
            entry = self._entries.get(uid)
            if entry is None or entry.due_ms != due_ms:
                continue  # superseded by a later note
            self._tokens -= 1
            found.append((uid, entry.current))
            entry.due_ms, entry.written, entry.written_ms, entry.is_written = None, entry.current, now_ms, True
            if entry.current is None:
                del self._entries[uid]
        return found

    def next_due_ms(self, now_ms: int) -> int | None:
        """When ``due`` is worth asking again; None if nothing waits to be written."""
        if not self._due:
            return None
        refill_ms = 0 if self._tokens >= 1 else 1000 // WRITES_PER_S
        return max(self._due[0][0], now_ms + refill_ms)

    def _refill(self, now_ms: int) -> None:
        if self._refilled_ms is not None:
            gained = max(0, now_ms - self._refilled_ms) * WRITES_PER_S / 1000
            self._tokens = min(BURST, self._tokens + gained)
        self._refilled_ms = now_ms


def _code(why: Reason | None) -> ReasonCode | None:
    return why.code if why else None
