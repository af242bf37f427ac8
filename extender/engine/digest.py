"""A digest of the state: equal for equal states, whatever history led there.

Workloads are summed up one by one, so that only those which changed since the last digest cost anything; quota objects
and the lines of the queues are read anew. Cost: O(changed workloads + quota objects).
"""

from collections.abc import Iterator
from hashlib import blake2b

import msgspec

from extender.engine.hierarchy import Tree
from extender.engine.queues import Shape
from extender.engine.state import ClusterQueueState
from extender.engine.world import World
from extender.model.names import WorkloadUid

_BITS = 128
_encode = msgspec.msgpack.Encoder(order="deterministic").encode


class Digest:
    """Keeps the sum over workloads of one world."""

    def __init__(self) -> None:
        self._sum = 0
        self._parts: dict[WorkloadUid, int] = {}

    def fork(self) -> "Digest":
        """The same sum, on its own from now on."""
        made = Digest()
        made._sum, made._parts = self._sum, dict(self._parts)
        return made

    def of(self, world: World) -> bytes:
        """The digest of *world*."""
        world.settle()
        if world.touched is None:
            self._sum, self._parts = 0, {}
        for uid in world.workloads if world.touched is None else world.touched:
            self._sum -= self._parts.pop(uid, 0)
            if uid in world.workloads:
                part = self._parts[uid] = _workload(world, uid)
                self._sum += part
        world.touched = {}
        self._sum %= 1 << _BITS
        facts = [
            [world.flavors[name] for name in sorted(world.flavors)],
            [world.cohorts[name] for name in sorted(world.cohorts)],
            [world.local_queues[key] for key in sorted(world.local_queues)],
            sorted(world.namespaces.items()),
            [_queue(world.states[name]) for name in sorted(world.states)],
            sorted(world.drains),
            sorted(
                _encode(edge) for tree in {state.leaf.tree for state in world.states.values()} for edge in _taken(tree)
            ),
        ]
        return blake2b(_encode((self._sum.to_bytes(_BITS // 8, "big"), facts)), digest_size=_BITS // 8).digest()


def _taken(tree: Tree | None) -> Iterator[object]:
    return iter(()) if tree is None else tree.loops.all()


def _hash(value: object) -> int:
    return int.from_bytes(blake2b(_encode(value), digest_size=_BITS // 8).digest(), "big")


def _workload(world: World, uid: WorkloadUid) -> int:
    """Everything about one workload that decides."""
    charge = world.charges.get(uid)
    if charge is not None:
        state: object = (charge.admission, charge.assumed, charge.evicting, charge.preemptor)
    else:
        pending = world.pending[uid]
        state = (pending.progress, sorted(pending.victims))
    return _hash((world.workloads[uid], state))


def _queue(state: ClusterQueueState) -> object:
    """The spec, and what of the line is not in the workloads."""
    line, hold = state.pending, state.hold
    parked = sorted(_shape(bucket.shape) for bucket in line.buckets.values() if bucket.parked) if line.parked else []
    held = None if hold is None else (sorted(hold.usage.items()), hold.flavors)
    sticky = None if line.sticky is None else line.sticky.workload.uid
    return (state.name, state.leaf.spec, sticky, held, parked)


def _shape(shape: Shape) -> bytes:
    if shape.digest is None:
        shape.digest = blake2b(_encode((shape.priority, shape.pod_sets)), digest_size=_BITS // 8).digest()
    return shape.digest
