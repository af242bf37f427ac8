"""What one pod asks for: the scheduler's formula, which is part of the Kubernetes API.

Sums are exact and rounded up once, at the end. Most pods of a cluster are made from a few templates, so the result is
cached by the text of the template. Source: Kubernetes component-helpers ``PodRequests``, as described in the
specification of gated pods, section 9.
"""

from fractions import Fraction
from functools import lru_cache
from typing import Final, TypeVar

import msgspec

from extender.kube.wire import PodSpecWire, Quantity, ResourcesWire
from extender.model.amounts import parse_quantity, request_amount
from extender.model.errors import UNREADABLE, UserError
from extender.model.names import CPU, ResourceName
from extender.model.pods import MARKER_RESOURCE
from extender.model.workload import Requests

T = TypeVar("T")
Sums = dict[str, Fraction]
NOTHING: Final = Fraction(0)
_RESOURCES = msgspec.json.Decoder(ResourcesWire | None)
_QUANTITIES = msgspec.json.Decoder(dict[str, Quantity] | None)


def pod_requests(spec: PodSpecWire) -> Requests:
    """One pod's requests in canonical units, sorted by name. Raises: UserError, at the first unreadable quantity."""
    containers = tuple([bytes(one.resources) for one in spec.containers or ()])
    inits = tuple([(one.restart_policy == "Always", bytes(one.resources)) for one in spec.init_containers or ()])
    return _requests(containers, inits, bytes(spec.resources), bytes(spec.overhead))


@lru_cache(maxsize=4096)
def _requests(
    containers: tuple[bytes, ...], inits: tuple[tuple[bool, bytes], ...], whole: bytes, overhead: bytes
) -> Requests:
    total: Sums = {}
    for at, text in enumerate(containers):
        _add(total, _asked(text, f"spec.containers[{at}].resources"))
    sidecars: Sums = {}
    peak: Sums = {}
    for at, (restartable, text) in enumerate(inits):
        own = _asked(text, f"spec.initContainers[{at}].resources")
        if restartable:
            _add(sidecars, own)
            _raise_to(peak, sidecars)
        else:
            _raise_to(peak, {name: own.get(name, NOTHING) + sidecars.get(name, NOTHING) for name in {*own, *sidecars}})
    _add(total, sidecars)
    _raise_to(total, peak)
    for name, value in _asked(whole, "spec.resources").items():
        if name in (CPU, "memory") or name.startswith("hugepages-"):
            total[name] = value
    _add(total, _parsed(_read(_QUANTITIES, overhead, "spec.overhead"), "spec.overhead"))
    total.pop(MARKER_RESOURCE, None)
    return tuple((ResourceName(name), request_amount(total[name], ResourceName(name))) for name in sorted(total))


def _asked(text: bytes, where: str) -> Sums:
    """The requests within a ``resources`` field; what has a limit only is requested at that limit.

    The API server does the same to a pod, but not to the template of a Job that has no pods yet.
    """
    resources = _read(_RESOURCES, text, where)
    if resources is None:
        return {}
    limits = _parsed(resources.limits, f"{where}.limits")
    return {**limits, **_parsed(resources.requests, f"{where}.requests")}


def _read(decoder: msgspec.json.Decoder[T], text: bytes, where: str) -> T:
    try:
        return decoder.decode(text)
    except UNREADABLE as error:
        raise UserError(f"{where}: cannot be read") from error


def _parsed(asked: dict[str, Quantity] | None, where: str) -> Sums:
    parsed: Sums = {}
    for name, value in (asked or {}).items():
        try:
            parsed[name] = parse_quantity(str(value))
        except UserError as error:
            raise error.inside(f"{where}[{name}]") from error
    return parsed


def _add(sums: Sums, more: Sums) -> None:
    for name, value in more.items():
        sums[name] = sums.get(name, NOTHING) + value


def _raise_to(sums: Sums, least: Sums) -> None:
    for name, value in least.items():
        sums[name] = max(sums.get(name, value), value)
