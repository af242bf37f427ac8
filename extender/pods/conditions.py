"""When to write on a pod why it waits, and how much: often enough to be true, seldom enough never to be a storm.

The first reason is due at once, but for one that passes by itself: that when the workload has waited for 2 s, since
most are admitted sooner and need no write but that. A reason that needs an edit is always due at once, another code
when it has held for 5 s, the same code after 10 minutes, if a number has moved by a quarter. Place in line is never
written. Of each LocalQueue the first 20 workloads are its *voices*, whose numbers are kept current; the others are
written once per code, those like a voice as "same as" it. Whatever happens a token bucket bounds the writes, one
token a pod.
Source: planning specification, section 1, "No write storm".
"""

import heapq
from collections.abc import Hashable
from datetime import UTC, datetime

import msgspec

from extender.model.names import WorkloadUid
from extender.model.reasons import Reason, ReasonCode

FIRST_MS = 2_000
CODE_HELD_MS = 5_000
UNSAID_MS = 10_000
NUMBERS_MS = 600_000
CHANGE_MIN = 0.25
"""How much of itself a number must move by to be worth a write."""
VOICES_MAX = 20
STALE_MAX = 64
"""What is due is made anew when it is longer, and twice as long as there are workloads."""
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
        ReasonCode.EXCESS_POD,
        ReasonCode.UNCOUNTED,
    }
)
_MOVES = frozenset(
    {
        ReasonCode.VICTIMS_LEAVING,
        ReasonCode.RESERVED_FOR_PREEMPTOR,
        ReasonCode.CHURN_BUDGET,
        ReasonCode.QUOTA_USED,
        ReasonCode.BORROWING_LIMIT,
        ReasonCode.LENDING_LIMIT,
        ReasonCode.COHORT_EXHAUSTED,
        ReasonCode.GANG_INCOMPLETE,
    }
)
"""Codes whose numbers go on moving after they were written: the sentence says when they were counted."""
_PASSES = _MOVES | {ReasonCode.BEHIND_STRICT_HEAD, ReasonCode.BEHIND_PRIORITY, ReasonCode.NOT_EVALUATED}
"""Codes that most often end by themselves, and soon."""
_PLACE = frozenset({"position", "ahead"})


class Like(msgspec.Struct, frozen=True):
    """What decides who speaks for whom: the LocalQueue, the name to call it by, and what makes others like it."""

    queue: str
    name: str
    shape: Hashable = None


class Saying(msgspec.Struct, frozen=True):
    """What to write. ``why`` None: it is admitted. ``first``: its code is new.

    ``refresh``: only numbers have moved, so the first pod is enough. ``fill``: pods that say it already may stay.
    """

    uid: WorkloadUid
    why: Reason | None
    same_as: str = ""
    first: bool = True
    refresh: bool = False
    fill: bool = False


class _Entry(msgspec.Struct):
    current: Reason | None
    since_ms: int
    like: Like
    began_ms: int = 0
    due_ms: int | None = None
    written: Reason | None = None
    written_ms: int = 0
    code: ReasonCode | None = None
    fill: bool = False


class Conditions:
    """The reasons that hold now, what was written of them, and what is due."""

    def __init__(self, *, first_ms: int = FIRST_MS) -> None:
        self._first_ms = first_ms
        self._entries: dict[WorkloadUid, _Entry] = {}
        self._due: list[tuple[int, WorkloadUid]] = []
        self._voices: dict[str, dict[WorkloadUid, None]] = {}
        self._tokens: float = BURST
        self._refilled_ms: int | None = None

    def has(self, uid: WorkloadUid) -> bool:
        """Whether a reason is known."""
        return uid in self._entries

    def note(
        self,
        uid: WorkloadUid,
        why: Reason | None,
        now_ms: int,
        *,
        like: Like | None = None,
        shown: str = "",
        missing: bool = False,
    ) -> None:
        """*why* holds from now on; None: admitted, which is written only where a reason was.

        *shown* is the code that the condition carries already, as the watch shows it: after a restart nothing is said
        twice, and a reason that an admission left behind is set right. *missing*: a pod of it says nothing, or
        something else.
        """
        entry = self._entries.get(uid)
        if why is None and not shown and (entry is None or entry.code is None):
            self.drop(uid)
            return
        if entry is None:
            entry = self._entries[uid] = _Entry(why, now_ms, like or Like("", ""), now_ms)
            if why is not None and shown == why.code:
                entry.written, entry.written_ms, entry.code = why, now_ms, why.code
                self._speaks(uid, entry)
        elif entry.current == why and not (missing and entry.due_ms is None):
            return
        elif _code(entry.current) != _code(why):
            entry.since_ms = now_ms
        entry.current, entry.like, entry.fill = why, like or entry.like, missing
        self._plan(uid, entry, now_ms)

    def _plan(self, uid: WorkloadUid, entry: _Entry, now_ms: int) -> None:
        entry.due_ms = self._when(uid, entry, now_ms)
        if entry.due_ms is not None:
            heapq.heappush(self._due, (entry.due_ms, uid))
            if len(self._due) > STALE_MAX and len(self._due) > 2 * len(self._entries):
                # Whoever writes nothing takes nothing from it, and would keep the names of all that ever waited.
                known = self._entries.items()
                self._due = [(each.due_ms, key) for key, each in known if each.due_ms is not None]
                heapq.heapify(self._due)

    def _when(self, uid: WorkloadUid, entry: _Entry, now_ms: int) -> int | None:
        """When to write what holds now; None: what stands is good enough."""
        current = entry.current
        if current is None:
            return now_ms
        if entry.code is None:
            return max(now_ms, entry.began_ms + self._first_ms) if current.code in _PASSES else now_ms
        if entry.code is not current.code:
            return now_ms if current.code in NEEDS_AN_EDIT else entry.since_ms + CODE_HELD_MS
        if current.code is ReasonCode.GANG_INCOMPLETE:
            # Its pods come one by one: when no other has come for so long.
            return now_ms + CODE_HELD_MS if entry.written != current else None
        if entry.fill:
            return max(now_ms, entry.written_ms) + CODE_HELD_MS  # what was written last is seen by then
        if self._speaks(uid, entry) and _moved(entry.written, current):
            return entry.written_ms + NUMBERS_MS
        return None

    def drop(self, uid: WorkloadUid) -> None:
        """The workload is gone, or there is nothing more to say about it."""
        entry = self._entries.pop(uid, None)
        if entry is not None:
            voices = self._voices.get(entry.like.queue, {})
            voices.pop(uid, None)
            if not voices:
                self._voices.pop(entry.like.queue, None)

    def let_go(self, most: int) -> bool:
        """Forget *most* of all that is known, for a term that is over; whether anything is left.

        To forget thousands at once takes its time.
        """
        del self._due[-most:]
        for _ in range(min(most, len(self._entries))):
            self._entries.popitem()
        return bool(self._entries or self._due)

    def due(self, now_ms: int) -> list[Saying]:
        """What to write now, at most what the token bucket allows; one token each, see ``spend``."""
        self._refill(now_ms)
        found: list[Saying] = []
        while self._tokens >= 1 and self._due and self._due[0][0] <= now_ms:
            due_ms, uid = heapq.heappop(self._due)
            entry = self._entries.get(uid)
            if entry is None or entry.due_ms != due_ms:
                continue  # superseded by a later note
            self._tokens -= 1
            found.append(self._say(uid, entry, now_ms))
        return found

    def _say(self, uid: WorkloadUid, entry: _Entry, now_ms: int) -> Saying:
        why, code = entry.current, entry.code
        if why is None:
            self.drop(uid)
            return Saying(uid, None)
        first = code is not why.code
        same_as = "" if why.code in NEEDS_AN_EDIT or self._speaks(uid, entry) else self._voice_like(entry)
        all_pods = first or why.code is ReasonCode.GANG_INCOMPLETE
        fill = entry.fill and not all_pods
        refresh = not (all_pods or fill)
        entry.due_ms, entry.written, entry.written_ms, entry.code, entry.fill = None, why, now_ms, why.code, False
        return Saying(uid, why, same_as=same_as, first=first, refresh=refresh, fill=fill)

    def unsaid(self, uid: WorkloadUid, now_ms: int, *, admitted: bool = False) -> None:
        """What was to be written was not: it is due again in a while, if it still holds then."""
        entry = self._entries.get(uid)
        if entry is None and admitted:
            entry = self._entries[uid] = _Entry(None, now_ms, Like("", ""))
        if entry is not None and (entry.current is None) is admitted:
            entry.written, entry.code, entry.due_ms = None, None, now_ms + UNSAID_MS
            heapq.heappush(self._due, (entry.due_ms, uid))

    def spend(self, tokens: int) -> None:
        """More was written than one pod: what is due next waits for it."""
        self._tokens -= tokens

    def next_due_ms(self, now_ms: int) -> int | None:
        """When ``due`` is worth asking again; None if nothing waits to be written."""
        if not self._due:
            return None
        refill_ms = 0 if self._tokens >= 1 else int((1 - self._tokens) * 1000 / WRITES_PER_S)
        return max(self._due[0][0], now_ms + refill_ms)

    def _speaks(self, uid: WorkloadUid, entry: _Entry) -> bool:
        """Whether it is one of its queue's voices, as it becomes while there is room."""
        voices = self._voices.setdefault(entry.like.queue, {})
        if uid in voices:
            return True
        if len(voices) >= VOICES_MAX:
            return False
        voices[uid] = None
        return True

    def _voice_like(self, entry: _Entry) -> str:
        """The name of the voice that says the same for a workload like this one, empty if none does."""
        for uid in self._voices.get(entry.like.queue, ()):
            voice = self._entries[uid]
            if voice.current == entry.current and voice.like.shape == entry.like.shape:
                return voice.like.name
        return ""

    def _refill(self, now_ms: int) -> None:
        if self._refilled_ms is not None:
            gained = max(0, now_ms - self._refilled_ms) * WRITES_PER_S / 1000
            self._tokens = min(BURST, self._tokens + gained)
        self._refilled_ms = now_ms


def text(why: Reason, now_ms: int, *, same_as: str = "") -> str:
    """The message of the condition: one sentence, without place in line, with the time where numbers move."""
    when = datetime.fromtimestamp(now_ms // 1000, UTC)
    said = f"{why.sentence(lasting=True)}{f' (counted {when:%Y-%m-%d %H:%M} UTC)' if why.code in _MOVES else ''}"
    return f"same as {same_as}: {said}" if same_as else said


def _code(why: Reason | None) -> ReasonCode | None:
    return why.code if why else None


def _moved(written: Reason | None, current: Reason) -> bool:
    """Whether what was written is far enough from what holds, place in line aside."""
    if written is None:
        return True
    before, now = dict(written.fields), dict(current.fields)
    for name, value in now.items():
        old = before.get(name)
        if name in _PLACE or value == old:
            continue
        if not (isinstance(value, int) and isinstance(old, int)) or abs(value - old) >= CHANGE_MIN * max(abs(old), 1):
            return True
    return False
