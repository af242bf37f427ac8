"""What every decoder shares: the codec around a typed decoder, times, labels, and the collecting of problems.

A decoder answers for any JSON value. Only an object without a name cannot be answered for (``Undecodable``).
"""

import datetime
import re
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from extender.kube.answers import read_status
from extender.kube.reflector import Held, Item, Line, Undecodable
from extender.kube.wire import BareWire, BookmarkWire, IdentityWire, MetaWire, RawLineWire
from extender.model.errors import UNREADABLE
from extender.model.events import Event
from extender.model.quota import Labels


class Wired(Protocol):
    """The shape of every object on the wire."""

    metadata: MetaWire


W = TypeVar("W", bound=Wired)
T = TypeVar("T")

PROBLEMS_TOLD_MAX: Final = 3
_NOT_SET: Final = b"null"
_QUANTITY_TYPE: Final = "`int | float | str | null`"
_VALIDATION = re.compile(r"(?P<what>.*?)(?: - at `\$(?P<where>.*?)`)?", re.DOTALL)


class Problems:
    """What is wrong with one object, as sentences that begin with the field."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def add(self, where: str, text: str) -> None:
        """Note that field *where* is wrong."""
        self._texts.append(f"{where}: {text}")

    def __len__(self) -> int:
        return len(self._texts)

    @property
    def text(self) -> str:
        """The first few in one line, empty if there are none."""
        told = "; ".join(self._texts[:PROBLEMS_TOLD_MAX])
        more = len(self._texts) - PROBLEMS_TOLD_MAX
        return f"{told} (and {more} more)" if more > 0 else told


class Fields:
    """The fields of one JSON object, each read on its own with its own type."""

    def __init__(self, raw: bytes | msgspec.Raw, *, where: str, problems: Problems) -> None:
        self._where = where
        self._problems = problems
        try:
            self._raw = _FIELDS.decode(raw) or {}
        except UNREADABLE as error:
            self._raw = {}
            problems.add(where, readable(error)[1])

    def read(self, name: str, kind: Callable[[bytes | msgspec.Raw], T]) -> T | None:
        """Field *name*; None if it is absent or null, or unreadable, which is noted as a problem."""
        raw = self._raw.get(name)
        if raw is None or bytes(raw) == _NOT_SET:
            return None
        try:
            return kind(raw)
        except UNREADABLE as error:
            path, what = readable(error)
            self._problems.add(f"{self._where}.{name}{path}", what)
            return None


_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw] | None)


def readable(error: Exception) -> tuple[str, str]:
    """Where in a value *error* is, as a path that begins with ``.`` or ``[``, and what it says."""
    if isinstance(error, msgspec.ValidationError):
        match = _VALIDATION.fullmatch(str(error))
        if match:
            what = match["what"][:1].lower() + match["what"][1:]
            return match["where"] or "", what.replace(_QUANTITY_TYPE, "a quantity such as 4, 500m or 12Gi")
    return "", "cannot be read" if not isinstance(error, RecursionError) else "is nested too deeply"


@lru_cache(maxsize=4096)
def milliseconds(text: str | None) -> int:
    """A time of the API, such as ``2026-01-31T08:00:00Z``, in milliseconds since the epoch; 0 when unreadable.

    Cached: pods come in bursts, and each of them again and again.
    """
    if not text:
        return 0
    try:
        when = datetime.datetime.fromisoformat(text)
        if when.tzinfo is None:
            when = when.replace(tzinfo=datetime.UTC)
        return (when - _EPOCH) // _MILLISECOND
    except (ValueError, OverflowError):
        return 0


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)


def labels_of(found: dict[str, str] | None) -> Labels:
    """Labels sorted by key; keys and values, few and repeated, are kept once."""
    if not found:
        return ()
    intern = sys.intern
    return tuple(sorted((intern(key), intern(value)) for key, value in found.items()))


def key_of(meta: MetaWire | IdentityWire) -> str:
    """The key of an object within its resource: ``namespace/name``, or the name."""
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


Made = tuple[Event | None, str]
"""A fact (None: the object does not concern us, or is unusable) and what is wrong with the object, empty if nothing."""


class _LineWire(msgspec.Struct, Generic[W]):
    type: str
    object: W


class TypedCodec(Generic[W]):
    """A codec for objects of wire type *W*.

    ``make`` turns a decoded object into a fact; ``bare`` does for one of which only the identity could be read, and is
    told what is wrong; ``gone`` makes the fact of its end from key and UID.
    """

    def __init__(
        self,
        wire: type[W],
        *,
        make: Callable[[W], Made],
        gone: Callable[[Held], Event],
        bare: Callable[[IdentityWire, str], Made] = lambda identity, problem: (None, problem),
    ) -> None:
        self._item: msgspec.json.Decoder[W] = msgspec.json.Decoder(wire)
        self._line: msgspec.json.Decoder[_LineWire[W]] = msgspec.json.Decoder(
            _LineWire[wire]  # type: ignore[valid-type]  # a generic Struct is closed at run time
        )
        self._make = make
        self._bare = bare
        self.gone = gone

    def item(self, raw: bytes | msgspec.Raw) -> Item:
        """The object in *raw*."""
        try:
            return self._whole(self._item.decode(raw))
        except UNREADABLE as error:
            return self._by_identity(raw, error)

    def line(self, line: bytes) -> Line:
        """One line of a watch. The usual line is decoded in one go, any other one step by step."""
        try:
            read = self._line.decode(line)
            if read.type in _OBJECT_TYPES:
                return Line(read.type, self._whole(read.object))
        except UNREADABLE:
            pass
        return self._odd_line(line)

    def _odd_line(self, line: bytes) -> Line:
        try:
            read = _RAW_LINE.decode(line)
            if read.type == "BOOKMARK":
                return Line(read.type, version=_BOOKMARK.decode(read.object).metadata.resource_version)
        except UNREADABLE as error:
            raise Undecodable("a watch line cannot be read") from error
        if read.type == "ERROR":
            status = read_status(bytes(read.object))
            return Line(read.type, code=status.code or 0, message=status.message or status.reason or "")
        return Line(read.type, self.item(read.object))

    def _whole(self, wire: W) -> Item:
        meta = wire.metadata
        if not meta.name:
            raise Undecodable("an object without a name")
        fact, problem = self._make(wire)
        return Item(key_of(meta), meta.uid, meta.resource_version, fact, problem)

    def _by_identity(self, raw: bytes | msgspec.Raw, error: Exception) -> Item:
        try:
            identity = _BARE.decode(raw).metadata
        except UNREADABLE:
            raise Undecodable("an object whose name cannot be read") from error
        if not identity.name:
            raise Undecodable("an object without a name") from error
        path, what = readable(error)
        fact, problem = self._bare(identity, f"{path.removeprefix('.') or 'object'}: {what}")
        return Item(key_of(identity), identity.uid, identity.resource_version, fact, problem)


_OBJECT_TYPES: Final = frozenset(("ADDED", "MODIFIED", "DELETED"))
_RAW_LINE = msgspec.json.Decoder(RawLineWire)
_BOOKMARK = msgspec.json.Decoder(BookmarkWire)
_BARE = msgspec.json.Decoder(BareWire)
