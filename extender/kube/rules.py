"""The rules that Kueue's schema and webhook set for single values, checked again here.

The CRDs state most of them, but an object may have been stored under other CRDs, or none of ours. Source: API
reference, sections 1 to 3; ``(w)`` marks there what only the reference's webhook checks.
"""

import re
from fractions import Fraction
from typing import Final, TypeVar

from extender.kube.decode import Problems
from extender.kube.wire import ExpressionWire, Quantity, SelectorWire, TaintWire, TolerationWire
from extender.model.amounts import parse_quantity
from extender.model.errors import UserError
from extender.model.quota import FairWeight, Labels, Requirement, Selector, Taint, Toleration

T = TypeVar("T")

NAME_LENGTH_MAX: Final = 253
PART_LENGTH_MAX: Final = 63
WEIGHT_MIN: Final = Fraction(1, 10**9)
TAINTS_MAX = TOLERATIONS_MAX = NODE_LABELS_MAX = 8
EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_PART = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


def is_name(text: str) -> bool:
    """Whether *text* is a DNS subdomain, as names of objects are."""
    return len(text) <= NAME_LENGTH_MAX and _SUBDOMAIN.fullmatch(text) is not None


def is_label_key(text: str) -> bool:
    """Whether *text* is a qualified name: ``[prefix/]name``."""
    prefix, slash, name = text.rpartition("/")
    return (is_name(prefix) if slash else True) and is_label_value(name) and bool(name)


def is_label_value(text: str) -> bool:
    """Whether *text* may be the value of a label; the empty text may."""
    return len(text) <= PART_LENGTH_MAX and (not text or _PART.fullmatch(text) is not None)


def name(text: str | None, *, where: str, problems: Problems) -> str:
    """*text* if it is a name, else the empty text."""
    if text and not is_name(text):
        problems.add(where, f"{text[:NAME_LENGTH_MAX]!r} is not a name of an object")
        return ""
    return text or ""


def choice(text: str | None, words: dict[str, T], *, where: str, problems: Problems, default: T) -> T:
    """What *text* stands for in *words*; *default* when it is left out or not one of them."""
    if not text:
        return default
    if text not in words:
        problems.add(where, f"{text[:PART_LENGTH_MAX]!r} is unknown; write {' or '.join(words)}")
        return default
    return words[text]


def number(value: Quantity, *, where: str, problems: Problems) -> Fraction | None:
    """The quantity *value* if it is one and not negative, else None."""
    try:
        parsed = parse_quantity(str(value))
    except UserError as error:
        problems.add(where, str(error))
        return None
    if parsed < 0:
        problems.add(where, f"{value} is negative; write 0 or more")
        return None
    return parsed


def weight(value: Quantity | None, *, where: str, problems: Problems) -> FairWeight:
    """A fair-sharing weight: 1 when left out or wrong."""
    if value is None:
        return FairWeight()
    parsed = number(value, where=where, problems=problems)
    if parsed is None:
        return FairWeight()
    if parsed and parsed <= WEIGHT_MIN:
        problems.add(where, f"{value} is too small; write 0, or more than 1n")
        return FairWeight()
    return FairWeight(float(parsed))


def selector(wire: SelectorWire, *, where: str, problems: Problems) -> Selector | None:
    """A label selector; None when it is wrong, so that it matches nothing."""
    before = len(problems)
    labels = sorted((wire.match_labels or {}).items())
    requirements = []
    for index, expression in enumerate(wire.match_expressions or ()):
        spot = f"{where}.matchExpressions[{index}]"
        if expression.operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
            problems.add(f"{spot}.operator", f"{expression.operator!r} is not In, NotIn, Exists or DoesNotExist")
        elif (expression.operator in ("In", "NotIn")) != bool(expression.values):
            wants = "needs values" if expression.operator in ("In", "NotIn") else "takes no values"
            problems.add(f"{spot}.values", f"operator {expression.operator} {wants}")
        if not is_label_key(expression.key):
            problems.add(f"{spot}.key", f"{expression.key!r} is not a label key")
        requirements.append(requirement(expression))
    for key, value in labels:
        if not (is_label_key(key) and is_label_value(value)):
            problems.add(f"{where}.matchLabels", f"{key!r}: {value!r} is not a label")
    return Selector(tuple(labels), tuple(requirements)) if len(problems) == before else None


def requirement(wire: ExpressionWire) -> Requirement:
    """A match expression as the model has it."""
    return Requirement(wire.key, wire.operator, tuple(wire.values or ()))


def node_labels(found: dict[str, str], *, where: str, problems: Problems) -> Labels:
    """The node labels of a flavor."""
    if len(found) > NODE_LABELS_MAX:
        problems.add(where, f"has {len(found)} labels; at most {NODE_LABELS_MAX}")
    for key, value in sorted(found.items()):
        if not (is_label_key(key) and is_label_value(value)):
            problems.add(where, f"{key!r}: {value!r} is not a label")
    return tuple(sorted(found.items()))


def taints(wires: list[TaintWire], *, where: str, problems: Problems) -> tuple[Taint, ...]:
    """The taints of a flavor's nodes."""
    if len(wires) > TAINTS_MAX:
        problems.add(where, f"has {len(wires)} taints; at most {TAINTS_MAX}")
    seen = set()
    for index, wire in enumerate(wires):
        spot = f"{where}[{index}]"
        if not is_label_key(wire.key):
            problems.add(f"{spot}.key", f"{wire.key!r} is not a label key")
        if not is_label_value(wire.value or ""):
            problems.add(f"{spot}.value", f"{wire.value!r} is not a label value")
        if wire.effect not in EFFECTS:
            problems.add(f"{spot}.effect", f"{wire.effect!r} is unknown; write {' or '.join(EFFECTS)}")
        if (wire.key, wire.effect) in seen:
            problems.add(spot, f"{wire.key}:{wire.effect} is there twice")
        seen.add((wire.key, wire.effect))
    return tuple(taint(wire) for wire in wires)


def taint(wire: TaintWire) -> Taint:
    """A taint as the model has it."""
    return Taint(wire.key, wire.value or "", wire.effect)


def tolerations(wires: list[TolerationWire], *, where: str, problems: Problems) -> tuple[Toleration, ...]:
    """The tolerations that a flavor hands out."""
    if len(wires) > TOLERATIONS_MAX:
        problems.add(where, f"has {len(wires)} tolerations; at most {TOLERATIONS_MAX}")
    for index, wire in enumerate(wires):
        spot = f"{where}[{index}]"
        operator = wire.operator or "Equal"
        if operator not in ("Equal", "Exists"):
            problems.add(f"{spot}.operator", f"{operator!r} is unknown; write Equal or Exists")
        if not wire.key and operator != "Exists":
            problems.add(f"{spot}.operator", "an empty key needs operator Exists")
        if wire.key and not is_label_key(wire.key):
            problems.add(f"{spot}.key", f"{wire.key!r} is not a label key")
        if wire.value and operator == "Exists":
            problems.add(f"{spot}.value", "operator Exists takes no value")
        if not is_label_value(wire.value or ""):
            problems.add(f"{spot}.value", f"{wire.value!r} is not a label value")
        if wire.effect and wire.effect not in EFFECTS:
            problems.add(f"{spot}.effect", f"{wire.effect!r} is unknown; write {' or '.join(EFFECTS)}")
        if wire.toleration_seconds is not None and wire.effect != "NoExecute":
            problems.add(f"{spot}.tolerationSeconds", "only with effect NoExecute")
    return tuple(toleration(wire) for wire in wires)


def toleration(wire: TolerationWire) -> Toleration:
    """A toleration as the model has it."""
    return Toleration(
        wire.key or "", wire.operator or "Equal", wire.value or "", wire.effect or "", wire.toleration_seconds
    )
