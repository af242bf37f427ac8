"""What one pod asks for: the scheduler's formula, which is part of the Kubernetes API.

Sums are exact and rounded up once, at the end. Most pods of a cluster are made from a few templates, so the result is
cached by what the template says. Source: Kubernetes component-helpers ``PodRequests``, as described in the
specification of gated pods, section 9.
"""

from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from typing import Final

from extender.kube.wire import ContainerWire, PodSpecWire, Quantity
from extender.model.amounts import parse_quantity, request_amount
from extender.model.errors import UserError
from extender.model.names import CPU, ResourceName
from extender.model.pods import MARKER_RESOURCE
from extender.model.workload import Requests

Asked = tuple[tuple[str, Quantity], ...]
Sums = dict[str, Fraction]
NOTHING: Final = Fraction(0)


def pod_requests(spec: PodSpecWire) -> Requests:
    """One pod's requests in canonical units, sorted by name. Raises: UserError, at the first unreadable quantity."""
    containers = tuple([_asked(one) for one in spec.containers or ()])
    inits = tuple([(one.restart_policy == "Always", _asked(one)) for one in spec.init_containers or ()])
    whole = tuple(spec.resources.requests.items()) if spec.resources and spec.resources.requests else ()
    overhead = tuple(spec.overhead.items()) if spec.overhead else ()
    return _requests(containers, inits, whole, overhead)


def _asked(container: ContainerWire) -> Asked:
    resources = container.resources
    return tuple(resources.requests.items()) if resources is not None and resources.requests else ()


@lru_cache(maxsize=4096)
def _requests(
    containers: tuple[Asked, ...], inits: tuple[tuple[bool, Asked], ...], whole: Asked, overhead: Asked
) -> Requests:
    total: Sums = {}
    for at, asked in enumerate(containers):
        _add(total, _parsed(asked, f"spec.containers[{at}].resources.requests"))
    sidecars: Sums = {}
    peak: Sums = {}
    for at, (restartable, asked) in enumerate(inits):
        own = _parsed(asked, f"spec.initContainers[{at}].resources.requests")
        if restartable:
            _add(sidecars, own)
            _raise_to(peak, sidecars)
        else:
            _raise_to(peak, {name: own.get(name, NOTHING) + sidecars.get(name, NOTHING) for name in {*own, *sidecars}})
    _add(total, sidecars)
    _raise_to(total, peak)
    for name, value in _parsed(whole, "spec.resources.requests").items():
        if name in (CPU, "memory") or name.startswith("hugepages-"):
            total[name] = value
    _add(total, _parsed(overhead, "spec.overhead"))
    total.pop(MARKER_RESOURCE, None)
    return tuple((ResourceName(name), request_amount(total[name], ResourceName(name))) for name in sorted(total))


def _parsed(asked: Iterable[tuple[str, Quantity]], where: str) -> Sums:
    parsed: Sums = {}
    for name, value in asked:
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
