"""List–watch as a machine without I/O: what to do next, and which facts follow from what came.

The store keeps, per object, its UID, its version and the fact that was handed over. A list is compared with the store
by key and UID, so what happened while nobody watched becomes facts too; an object made again under its old name is a
deletion and then an addition. A fact equal to the last one is not told again (nodes beat every five minutes).

Times are seconds of any monotonic clock, given by the caller; so is the randomness of the back-off.
Source of the rules: the notes on talking to Kubernetes, section 3; Kubernetes API concepts, "efficient detection of
changes".
"""

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final, Protocol

import msgspec

from extender.model.errors import ExtenderError, Gone, TooManyRequests, UserError
from extender.model.events import Event

BACKOFF_MIN_S: Final = 0.8
BACKOFF_MAX_S: Final = 30.0
"""Between attempts that only an edit by somebody can help: a right, a CRD."""
OUTAGE_BACKOFF_MAX_S: Final = 5.0
"""Between attempts while the API server is away: nobody is admitted until we have found it again."""
BACKOFF_JITTER: Final = 0.5
STEADY_AFTER_S: Final = 60.0
SHORT_STREAM_S: Final = 1.0
FAILURES_BEFORE_RELIST: Final = 3
SILENCE_S: Final = 150.0


class Undecodable(ExtenderError):
    """A line or an item of which not even its identity can be read: nothing may be skipped, so list again."""


class Item(msgspec.Struct, frozen=True, gc=False):
    """One object as it came. ``fact`` None: it does not concern us (or no longer, or it is unusable: ``problem``)."""

    key: str
    uid: str
    version: str
    fact: Event | None
    problem: str = ""


class Line(msgspec.Struct, frozen=True, gc=False):
    """One line of a watch. ``code`` and ``message`` are an ERROR's, ``version`` is a BOOKMARK's."""

    type: str
    item: Item | None = None
    version: str = ""
    code: int = 0
    message: str = ""


class Codec(Protocol):
    """Turns bytes of one kind of object into items. Never raises anything but ``Undecodable``."""

    def item(self, raw: bytes | msgspec.Raw) -> Item:
        """The object in *raw*, an element of a list."""

    def line(self, line: bytes) -> Line:
        """One line of a watch."""

    def gone(self, item: "Held") -> Event:
        """The fact that a held object is gone."""


class Held(msgspec.Struct, gc=False):
    """What we hold of one object."""

    key: str
    uid: str
    version: str
    fact: Event


class Do(Enum):
    """What to do next."""

    LIST = "list"
    WATCH = "watch"


class Counters(msgspec.Struct):
    """How often things happened since the start."""

    events: int = 0
    facts: int = 0
    lists: int = 0
    watches: int = 0
    gone: int = 0
    undecodable: int = 0
    errors: int = 0


def older(left: str, right: str) -> bool:
    """Whether version *left* is before *right*. Versions that are no plain numbers are in no order (False)."""
    if not (left.isdecimal() and right.isdecimal()):
        return False
    return (len(left), left) < (len(right), right)


class Reflector:
    """The machine. Ask ``todo`` and ``delay_s`` what to do and when, then report what came.

    A list: ``list_started``, ``listed`` for each item, ``lost`` for each key of ``unlisted``, ``list_ended``. A watch:
    ``watch_opened``, ``received`` for each line, ``watch_ended``. Failures: ``failed``, from either. ``whole`` tells to
    list without pages. ``problem`` is why the last attempt failed, empty while all is well; ``item_problems`` says per
    object why it cannot be used.
    """

    def __init__(self, codec: Codec, *, randomness: Callable[[], float], optional: bool = False) -> None:
        self.counters = Counters()
        self.todo = Do.LIST
        self.delay_s = 0.0
        self.whole = False
        self.version = ""
        self.synced = False
        self.problem = ""
        self.item_problems: dict[str, str] = {}
        self._codec = codec
        self._randomness = randomness
        self._optional = optional
        self._held: dict[str, Held] = {}
        self._unlisted: dict[str, Held] = {}
        self._listed_problems: dict[str, str] = {}
        self._failures = 0
        self._refused = False
        self._stalls = 0
        self._expired = 0
        self._opened_s: float | None = None
        self._progress = False

    def __len__(self) -> int:
        return len(self._held)

    # lists

    def list_started(self) -> None:
        """A list begins."""
        self.counters.lists += 1
        self._unlisted = self._held.copy()  # at the speed of memory: 10,000 take a tenth of a millisecond
        self._listed_problems = {}

    def listed(self, raw: bytes | msgspec.Raw) -> list[Event]:
        """The facts that follow from one item of the list. Raises: Undecodable."""
        item = self._codec.item(raw)
        self._unlisted.pop(item.key, None)
        if item.problem:
            self._listed_problems[item.key] = item.problem
        return self._seen(item)

    def unlisted(self) -> list[str]:
        """The keys of what is held and was not in the list, once all of it was taken: what is gone."""
        return list(self._unlisted)

    def lost(self, key: str) -> list[Event]:
        """The fact that one of the ``unlisted`` is gone."""
        del self._unlisted[key]
        self.counters.facts += 1
        return [self._codec.gone(self._held.pop(key))]

    def list_ended(self, version: str) -> None:
        """The list is complete at *version*, and what it lacks is known to be gone. The watch is next."""
        self.item_problems, self._listed_problems = self._listed_problems, {}
        self._unlisted = {}
        self.version, self.synced, self.problem = version, True, ""
        self.todo, self.whole = Do.WATCH, False
        self._stalls = 0
        self.delay_s = 0.0

    # watches

    def watch_opened(self, now_s: float) -> None:
        """The server has accepted the watch."""
        self.counters.watches += 1
        self._opened_s, self._progress = now_s, False

    def received(self, raw: bytes) -> list[Event]:
        """The facts that follow from one line.

        Raises: Undecodable; Gone, when our version is too old; any ExtenderError that an ERROR event stands for.
        """
        line = self._codec.line(raw)
        self.counters.events += 1
        if line.item is not None and line.type in ("ADDED", "MODIFIED", "DELETED"):
            facts = self._removed(line.item) if line.type == "DELETED" else self._changed(line.item)
            self._advance(line.item.version)
            return facts
        if line.type == "BOOKMARK" and line.version:
            self._advance(line.version)
            return []
        if line.type == "ERROR":
            raise self._told(line)
        raise Undecodable(f"a watch line of type {line.type[:20]!r}")

    def watch_ended(self, now_s: float) -> None:
        """The server ended the stream, as it does every few minutes; at once only if something is wrong."""
        lived_s = now_s - self._opened_s if self._opened_s is not None else 0.0
        self.todo, self.problem = Do.WATCH, ""
        if lived_s < SHORT_STREAM_S and not self._progress:
            self._back_off()
        else:
            self._calm(now_s)
            self.delay_s = 0.0
        self._opened_s = None

    def relist(self) -> None:
        """Somebody needs to know everything that was written until now: list next, at once."""
        self.todo, self.delay_s, self._opened_s = Do.LIST, 0.0, None

    # failures, of both

    def failed(self, error: ExtenderError, now_s: float) -> None:
        """What was asked last ended with *error*; decides what comes next and when."""
        watching = self.todo is Do.WATCH
        self._calm(now_s)
        self._opened_s = None
        self._unlisted, self._listed_problems = {}, {}
        self.problem = str(error)
        if isinstance(error, Gone) and error.status != 404:  # expired: the normal way to learn of a long absence
            self.counters.gone += 1
            self.problem = ""
            self.whole = not watching
            self.todo = Do.LIST
            self._expired += 1
            if watching and self._expired == 1:
                self.delay_s = 0.0
            else:
                self._back_off()  # a server that calls even its own lists expired is not asked in a busy loop
            return
        self.counters.errors += 1
        if isinstance(error, Undecodable):
            self.counters.undecodable += 1
            self.todo = Do.LIST
        elif watching:
            self._stalls = 0 if self._progress else self._stalls + 1
            if self._stalls >= FAILURES_BEFORE_RELIST or isinstance(error, UserError | Gone):
                self.todo = Do.LIST
        elif self._optional and error.status == 404:
            self.synced = True
        self._progress = False
        self._back_off(refused=isinstance(error, UserError | Gone))
        if isinstance(error, TooManyRequests) and error.retry_after_s is not None:
            self.delay_s = max(self.delay_s, min(error.retry_after_s, BACKOFF_MAX_S) * self._jitter(0, BACKOFF_JITTER))

    def _advance(self, version: str) -> None:
        self._progress = True
        self._expired = 0
        if version and not older(version, self.version):
            self.version = version

    def _told(self, line: Line) -> ExtenderError:
        text = f"ERROR event: {line.code} {line.message}"
        if line.code == 410:
            return Gone(text, status=410)
        if line.code == 429:
            return TooManyRequests(text)
        return ExtenderError(text, status=line.code)

    def _calm(self, now_s: float) -> None:
        if self._opened_s is not None and now_s - self._opened_s >= STEADY_AFTER_S:
            self._failures = 0

    def _back_off(self, *, refused: bool = False) -> None:
        if refused is not self._refused:  # an API server that starts says 403 for a moment: that is no new outage
            self._refused, self._failures = refused, 0
        base = min(BACKOFF_MIN_S * 2 ** min(self._failures, 10), BACKOFF_MAX_S if refused else OUTAGE_BACKOFF_MAX_S)
        self._failures += 1
        self.delay_s = base * self._jitter(-BACKOFF_JITTER, BACKOFF_JITTER)

    def _jitter(self, least: float, most: float) -> float:
        return 1 + least + (most - least) * self._randomness()

    # the store

    def _changed(self, item: Item) -> list[Event]:
        held = self._held.get(item.key)
        if held is not None and held.uid == item.uid and older(item.version, held.version):
            return []
        return self._seen(item)

    def _seen(self, item: Item) -> list[Event]:
        if item.problem:
            self.item_problems[item.key] = item.problem
        elif self.item_problems:
            self.item_problems.pop(item.key, None)
        held = self._held.get(item.key)
        if held is None:
            if item.fact is None:
                return []
            self._held[item.key] = Held(item.key, item.uid, item.version, item.fact)
            self.counters.facts += 1
            return [item.fact]
        facts: list[Event] = []
        if held.uid != item.uid or item.fact is None:
            facts.append(self._codec.gone(held))
            del self._held[item.key]
            if item.fact is not None:
                self._held[item.key] = Held(item.key, item.uid, item.version, item.fact)
                facts.append(item.fact)
        elif held.version != item.version:
            held.version = item.version
            if held.fact != item.fact:
                held.fact = item.fact
                facts.append(item.fact)
        self.counters.facts += len(facts)
        return facts

    def _removed(self, item: Item) -> list[Event]:
        held = self._held.get(item.key)
        if held is None or held.uid != item.uid:  # the older of two of one name: its end was told with the newer
            return []
        del self._held[item.key]
        self.item_problems.pop(item.key, None)
        self.counters.facts += 1
        return [self._codec.gone(held)]


def facts_of(reflector: Reflector, lines: Iterable[bytes]) -> list[Event]:
    """The facts that follow from *lines*, in order. Raises: as ``received``."""
    return [fact for line in lines for fact in reflector.received(line)]
