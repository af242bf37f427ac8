"""Series of a metric that has many, one for each ClusterQueue or more, and their lines in the exposition format.

With a thousand queues they are 10,000 lines. A metric library writes all of them at once, in 10 µs each; here they come
in parts, in 1 µs each, so that a scrape holds the event loop for a fraction of a millisecond at a time.
Source: Prometheus, text-based exposition format 0.0.4.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

import msgspec

LINES_MAX = 200
"""How many lines a part has at least, if there are so many."""
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Metric(ABC):
    """A metric: its name, its help, its type and its labels."""

    def __init__(self, name: str, text: str, kind: str, labels: Sequence[str]) -> None:
        self._name = name
        self._head = f"# HELP {name} {text}\n# TYPE {name} {kind}\n"
        self._labels = tuple(labels)

    def parts(self) -> Iterator[str]:
        """The lines of all series, in parts; a series that comes meanwhile may be missing."""
        lines = [self._head]
        for values in self._known():
            lines += self._lines(values, ",".join(map(_label, self._labels, values)))
            if len(lines) >= LINES_MAX:
                yield "".join(lines)
                lines = []
        yield "".join(lines)

    @abstractmethod
    def _known(self) -> list[tuple[str, ...]]:
        """The labels of all series."""

    @abstractmethod
    def _lines(self, values: tuple[str, ...], labels: str) -> list[str]:
        """The lines of one series, none if it is gone."""


class Numbers(Metric):
    """One number for each combination of labels: a gauge or a counter."""

    def __init__(self, name: str, text: str, kind: str, labels: Sequence[str]) -> None:
        super().__init__(name, text, kind, labels)
        self._numbers: dict[tuple[str, ...], float] = {}

    def put(self, *values: str, number: float) -> None:
        """It is *number* from now on."""
        self._numbers[values] = number

    def count(self, *values: str) -> None:
        """One more."""
        self._numbers[values] = self._numbers.get(values, 0) + 1

    def forget(self, first: str) -> None:
        """Drop all series whose first label is *first*."""
        for values in [values for values in self._numbers if values[0] == first]:
            del self._numbers[values]

    def _known(self) -> list[tuple[str, ...]]:
        return list(self._numbers)

    def _lines(self, values: tuple[str, ...], labels: str) -> list[str]:
        number = self._numbers.get(values)
        return [] if number is None else [f"{self._name}{{{labels}}} {float(number)!r}\n"]


class _Seen(msgspec.Struct):
    """How many fell into each bucket and beyond the last, and the sum of all."""

    counts: list[int]
    total: float = 0.0


class Times(Metric):
    """A histogram for each combination of labels."""

    def __init__(self, name: str, text: str, labels: Sequence[str], buckets: Iterable[float]) -> None:
        super().__init__(name, text, "histogram", labels)
        self._bounds = tuple(buckets)
        self._names = [*(repr(float(bound)) for bound in self._bounds), "+Inf"]
        self._seen: dict[tuple[str, ...], _Seen] = {}

    def observe(self, *values: str, seconds: float) -> None:
        """One more."""
        seen = self._seen.get(values)
        if seen is None:
            seen = self._seen[values] = _Seen([0] * len(self._names))
        seen.counts[bisect_left(self._bounds, seconds)] += 1
        seen.total += seconds

    def _known(self) -> list[tuple[str, ...]]:
        return list(self._seen)

    def _lines(self, values: tuple[str, ...], labels: str) -> list[str]:
        seen, lines, so_far = self._seen[values], [], 0
        for name, count in zip(self._names, seen.counts, strict=True):
            so_far += count
            lines.append(f'{self._name}_bucket{{{labels},le="{name}"}} {so_far}.0\n')
        lines.append(f"{self._name}_count{{{labels}}} {so_far}.0\n")
        lines.append(f"{self._name}_sum{{{labels}}} {float(seen.total)!r}\n")
        return lines


def _label(name: str, value: str) -> str:
    return f'{name}="{value.translate(_ESCAPES)}"'
