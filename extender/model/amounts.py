"""Exact integer amounts and Kubernetes quantities.

An amount is an ``int`` in the resource's canonical unit: milli-cores for ``cpu``, whole units or bytes for every
other name. Quantities are parsed exactly (never through a float) and rounded up, once per pod.

Quota knows one value that behaves like infinity: ``UNLIMITED``, 2^63−1. Requests saturate at it instead of
wrapping. Source of the rules: Kueue ``resources/amount.go`` as described in the quota specification, section 1.
"""

import re
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, Final

import msgspec

from extender.model.errors import UserError
from extender.model.names import CPU, ResourceName

UNLIMITED: Final = 2**63 - 1
NOTHING: Final = -(2**63)

Whole = Annotated[int, msgspec.Meta(ge=0, le=UNLIMITED)]
"""An amount or a count as we write it down: whatever else stands there was not written by us."""
TimeMs = Annotated[int, msgspec.Meta(ge=0, le=32_503_680_000_000)]
"""Milliseconds since the epoch as we write them down, up to the year 3000: calendars end somewhere beyond."""

_QUANTITY = re.compile(
    r"(?P<sign>[+-]?)(?P<number>[0-9]+\.?[0-9]*|\.[0-9]+)(?P<suffix>[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+|)"
)
_QUANTITY_LENGTH_MAX = 64
_EXPONENT_MAX = 40
_SUFFIXES: Final[dict[str, Fraction]] = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{letter: Fraction(1000**power) for power, letter in enumerate("kMGTPE", start=1)},
    **{f"{letter}i": Fraction(1024**power) for power, letter in enumerate("KMGTPE", start=1)},
}
_BINARY_NAMES = ("memory", "ephemeral-storage")


@lru_cache(maxsize=4096)
def parse_quantity(text: str) -> Fraction:
    """The exact value of a Kubernetes quantity such as ``1500m``, ``12Gi``, ``0.5`` or ``1e3``.

    Raises: UserError, when *text* is not a quantity or is absurdly long.
    """
    match = _QUANTITY.fullmatch(text) if len(text) <= _QUANTITY_LENGTH_MAX else None
    if match is None:
        raise UserError(f"{text[:_QUANTITY_LENGTH_MAX]!r} is not a quantity; write for example 4, 500m or 12Gi")
    sign, number, suffix = match["sign"], match["number"], match["suffix"]
    if suffix not in _SUFFIXES:
        exponent = int(suffix[1:])
        if abs(exponent) > _EXPONENT_MAX:
            raise UserError(f"{text!r} has an exponent beyond {_EXPONENT_MAX}")
        scale = Fraction(10) ** exponent
    else:
        scale = _SUFFIXES[suffix]
    value = Fraction(number) * scale
    return -value if sign == "-" else value


def _canonical(value: Fraction, resource: ResourceName) -> int:
    scaled = value * 1000 if resource == CPU else value
    return -((-scaled.numerator) // scaled.denominator)  # towards +∞


def quota_amount(text: str, resource: ResourceName) -> int:
    """A quota in canonical units; anything that 64 bits cannot hold is ``UNLIMITED``.

    For ``cpu`` that is floor((2^63−1)/1000) cores and more. Raises: UserError, as ``parse_quantity``.
    """
    value = parse_quantity(text)
    if resource == CPU:
        return UNLIMITED if value >= UNLIMITED // 1000 else _canonical(value, resource)
    return UNLIMITED if value >= UNLIMITED else _canonical(value, resource)


def request_amount(value: Fraction, resource: ResourceName) -> int:
    """One pod's request in canonical units, rounded up, from 0 to 2^63−1.

    A negative request is 0: admission refuses it, and old objects must not lend quota by asking for less than nothing.
    """
    return min(max(_canonical(value, resource), 0), UNLIMITED)


def times(amount: int, count: int) -> int:
    """*amount* of *count* pods, saturating at ``UNLIMITED``."""
    return min(amount * count, UNLIMITED)


def add(left: int, right: int) -> int:
    """Quota addition: unlimited swallows everything, bounded sums saturate."""
    if UNLIMITED in (left, right):
        return UNLIMITED
    return min(max(left + right, NOTHING), UNLIMITED)


def subtract(left: int, right: int) -> int:
    """Quota subtraction: U − U = 0, U − b = U, b − U = "no capacity" (−2^63)."""
    if left == UNLIMITED:
        return 0 if right == UNLIMITED else UNLIMITED
    if right == UNLIMITED:
        return NOTHING
    return min(max(left - right, NOTHING), UNLIMITED)


def format_amount(amount: int, resource: ResourceName) -> str:
    """*amount* as people write it: ``1500m`` of cpu, ``12Gi`` of memory, ``8`` of anything else."""
    if amount >= UNLIMITED:
        return "unlimited"
    if resource == CPU:
        whole, rest = divmod(amount, 1000)
        return f"{amount}m" if rest else str(whole)
    if resource in _BINARY_NAMES or resource.startswith("hugepages-"):
        for power, letter in reversed(list(enumerate("KMGTPE", start=1))):
            if amount and amount % 1024**power == 0:
                return f"{amount // 1024**power}{letter}i"
    return str(amount)
