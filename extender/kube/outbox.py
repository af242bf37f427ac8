"""The writes that wait: their order, their pace and their bounds, without I/O.

Acts (admissions, adoptions, evictions) go first and in order. Words (conditions, events, statuses) have a pace each and
the newest about an object replaces the older. Two writes about one object are never in flight together, and an act
makes the words about its pod that wait pointless.

Times are seconds of a monotonic clock, given by the caller.
"""

import heapq
from collections import deque
from collections.abc import Iterator
from typing import Final

import msgspec

from extender.model.effects import AdoptPod, Effect, EvictPod, RecordEvent, SetPodCondition, SetQueueStatus, UngatePod
from extender.model.errors import ExtenderError, TooManyRequests
from extender.model.jobs import (
    GrowJob,
    NudgePod,
    ReleaseJob,
    ResetStart,
    SetJobCondition,
    StartJob,
    StopJob,
    SuspendJob,
)

IN_FLIGHT_FIRST: Final = 4
BEGUN_AT_ONCE_MAX: Final = 2
"""How many requests begin in one turn: each takes some 0.3 ms until it is on its way."""
REST_S: Final = 30.0
"""After so long without an answer connections may have been closed."""
ACTS_MAX: Final = 50_000
CONDITIONS_MAX: Final = 50_000
STATUSES_MAX: Final = 10_000
EVENTS_MAX: Final = 200
TOLD_MAX: Final = 20_000
TELL_AGAIN_S: Final = 300.0

RETRY_MIN_S: Final = 0.5
RETRY_MAX_S: Final = 15.0
RETRY_AFTER_MAX_S: Final = 30.0
JITTER: Final = 0.5

DEADLINES_S: Final[dict[type, float]] = {
    UngatePod: 60.0,
    AdoptPod: 30.0,
    EvictPod: 600.0,
    StartJob: 60.0,
    StopJob: 600.0,
    SuspendJob: 60.0,
    GrowJob: 60.0,
    ResetStart: 60.0,
    ReleaseJob: 60.0,
    NudgePod: 60.0,
    SetPodCondition: 30.0,
    SetJobCondition: 30.0,
    SetQueueStatus: 30.0,
    RecordEvent: 15.0,
}
"""How long a write is tried, from its first attempt on."""


class Job(msgspec.Struct, eq=False):
    """One write on its way. ``unknown``: an attempt ended without an answer, so it may have been carried out.

    ``term``: the count of recalls when it was put in.
    """

    effect: Effect
    key: str
    term: int = 0
    deadline_s: float | None = None
    attempts: int = 0
    unknown: bool = False


class Bucket:
    """A token bucket: *rate* a second, *burst* at once."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate, self._burst = rate, float(burst)
        self._tokens, self._at_s = float(burst), 0.0

    def wait_s(self, now_s: float) -> float:
        """Seconds until there is a token, 0 if there is one."""
        if now_s > self._at_s:
            self._tokens = min(self._burst, self._tokens + (now_s - self._at_s) * self._rate)
            self._at_s = now_s
        return max(0.0, (1 - self._tokens) / self._rate)

    def take(self) -> None:
        """Use one token, after ``wait_s`` answered 0."""
        self._tokens -= 1


class Window:
    """How many writes may be in flight: a few after a rest, then one more with each answer, up to *most*.

    After a rest there are no open connections. To open all at once would hold the event loop with handshakes that end
    together, a millisecond each.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = self._first = min(most, IN_FLIGHT_FIRST)
        self._answered_s = 0.0

    def size(self, now_s: float) -> int:
        """How many may be in flight now."""
        if now_s - self._answered_s > REST_S:
            self._size = self._first
        return self._size

    def answered(self, now_s: float) -> None:
        """A write has ended."""
        self._size, self._answered_s = min(self._most, self._size + 1), now_s


class Pace(msgspec.Struct, frozen=True):
    """How many words a second, and how many at once."""

    conditions_per_s: float = 5.0
    conditions_burst: int = 5
    statuses_per_s: float = 2.0
    statuses_burst: int = 10
    events_per_s: float = 4.0
    events_burst: int = 25


class _Words:
    """Words of one kind, oldest first, one per key."""

    def __init__(self, bucket: Bucket, most: int) -> None:
        self.bucket, self.most = bucket, most
        self.jobs: dict[str, Job] = {}

    def put(self, job: Job) -> Effect | None:
        """Add *job*; the effect that it displaced, if any."""
        older = self.jobs.get(job.key)
        if older is not None:
            displaced, older.effect, older.term = older.effect, job.effect, job.term
            return displaced
        self.jobs[job.key] = job
        if len(self.jobs) > self.most:
            return self.jobs.pop(next(iter(self.jobs))).effect
        return None


class Outbox:
    """Put effects in, take jobs out, and say how each ended: ``finish`` or ``again``."""

    def __init__(self, pace: Pace = Pace()) -> None:  # noqa: B008 - frozen
        self._acts: deque[Job] = deque()
        self._behind: dict[str, deque[Job]] = {}
        self._later: list[tuple[float, int, Job]] = []
        self._claimed: set[str] = set()
        self._told: dict[tuple[str, str, str], float] = {}
        self._serial = 0
        self._term = 0
        self._open_acts = 0
        self._conditions = _Words(Bucket(pace.conditions_per_s, pace.conditions_burst), CONDITIONS_MAX)
        self._job_conditions = _Words(self._conditions.bucket, CONDITIONS_MAX)
        self._words: dict[type, _Words] = {
            SetQueueStatus: _Words(Bucket(pace.statuses_per_s, pace.statuses_burst), STATUSES_MAX),
            SetPodCondition: self._conditions,
            SetJobCondition: self._job_conditions,
            RecordEvent: _Words(Bucket(pace.events_per_s, pace.events_burst), EVENTS_MAX),
        }

    @property
    def open_acts(self) -> int:
        """Admissions, adoptions and evictions that have not ended."""
        return self._open_acts

    def __len__(self) -> int:
        return self._open_acts + sum(len(words.jobs) for words in self._words.values())

    def put(self, effect: Effect, now_s: float) -> Iterator[tuple[Effect, str]]:
        """Add *effect*; the effects that this makes pointless, with the cause, *effect* itself perhaps among them."""
        kind = type(effect)
        if isinstance(effect, RecordEvent) and self._tells_again(effect, now_s):
            yield effect, "told within five minutes"
        elif kind in self._words:
            displaced = self._words[kind].put(Job(effect, self._key(effect), self._term))
            if displaced is not None:
                yield displaced, "superseded"
        elif self._open_acts >= ACTS_MAX:
            yield effect, f"{ACTS_MAX} writes wait already"
        else:
            key = self._key(effect)
            word = self._conditions.jobs.pop(key, None) or self._job_conditions.jobs.pop(key, None)
            if word is not None:
                yield word.effect, "superseded"
            self._open_acts += 1
            self._admit(Job(effect, key, self._term))

    def recall(self) -> None:
        """All that was put in until now is void: it is not sent any more, and comes out at once to be told so."""
        self._term += 1
        self._later = [(0.0, serial, job) for _, serial, job in sorted(self._later, key=lambda entry: entry[1])]

    def is_void(self, job: Job) -> bool:
        """Whether *job* was recalled."""
        return job.term != self._term

    def take(self, now_s: float) -> Job | None:
        """The next write to send, None if nothing may be sent now."""
        job = self._next(now_s)
        if job is not None:
            job.attempts += 1
            if job.deadline_s is None:
                job.deadline_s = now_s + DEADLINES_S[type(job.effect)]
        return job

    def due_in_s(self, now_s: float) -> float | None:
        """Seconds until ``take``, which just had nothing, may have something by time alone; None: never.

        Words that have a token and still were not taken wait for a write about their object to end, not for time.
        """
        waits = [max(0.0, self._later[0][0] - now_s)] if self._later else []
        paced = [words.bucket.wait_s(now_s) for words in self._words.values() if words.jobs]
        return min([*waits, *(wait_s for wait_s in paced if wait_s > 0)], default=None)

    def finish(self, job: Job) -> None:
        """*job* has ended, one way or the other."""
        self._claimed.discard(job.key)
        if type(job.effect) not in self._words:
            self._open_acts -= 1
        behind = self._behind.get(job.key)
        if behind:
            self._claimed.add(job.key)
            self._acts.append(behind.popleft())
            if not behind:
                del self._behind[job.key]

    def again(self, job: Job, at_s: float) -> None:
        """Try *job* again at *at_s*; until then nothing else is written about its object."""
        self._serial += 1
        at_s = 0.0 if self.is_void(job) else at_s
        heapq.heappush(self._later, (at_s, self._serial, job))

    def _next(self, now_s: float) -> Job | None:
        if self._later and self._later[0][0] <= now_s:
            return heapq.heappop(self._later)[2]
        if self._acts:
            return self._acts.popleft()
        for words in self._words.values():
            if not words.jobs or words.bucket.wait_s(now_s) > 0:
                continue
            key = next((key for key in words.jobs if key not in self._claimed), None)
            if key is not None:
                words.bucket.take()
                self._claimed.add(key)
                return words.jobs.pop(key)
        return None

    def _admit(self, job: Job) -> None:
        if job.key in self._claimed:
            self._behind.setdefault(job.key, deque()).append(job)
        else:
            self._claimed.add(job.key)
            self._acts.append(job)

    def _key(self, effect: Effect) -> str:
        if isinstance(effect, SetQueueStatus):
            return f"{effect.kind}/{effect.namespace}/{effect.name}"
        if isinstance(effect, RecordEvent):
            self._serial += 1
            return f"event/{self._serial}"
        return effect.uid

    def _tells_again(self, effect: RecordEvent, now_s: float) -> bool:
        """Whether the same was told about the same pod a short while ago; if not, it is from now on."""
        said = (effect.uid, effect.reason, effect.message)
        if now_s - self._told.get(said, -TELL_AGAIN_S) < TELL_AGAIN_S:
            return True
        self._told.pop(said, None)
        self._told[said] = now_s
        while len(self._told) > TOLD_MAX or now_s - next(iter(self._told.values())) >= TELL_AGAIN_S:
            del self._told[next(iter(self._told))]
        return False


def retry_in_s(job: Job, error: ExtenderError, randomness: float) -> float:
    """Seconds to wait before the next attempt: doubling with jitter, and not less than the server asks for."""
    base = min(RETRY_MIN_S * 2.0 ** min(job.attempts - 1, 10), RETRY_MAX_S)
    delay_s = base * (1 - JITTER + 2 * JITTER * randomness)
    if isinstance(error, TooManyRequests) and error.retry_after_s is not None:
        delay_s = max(delay_s, min(error.retry_after_s, RETRY_AFTER_MAX_S) * (1 + JITTER * randomness))
    return delay_s
