"""Nodes → facts: labels, taints, what they can give. Heartbeats change none of these and are not told."""

from extender.kube import rules
from extender.kube.decode import Made, TypedCodec, labels_of
from extender.kube.wire import IdentityWire, NodeSpecWire, NodeStatusWire, NodeWire
from extender.model.amounts import parse_quantity, request_amount
from extender.model.errors import UserError
from extender.model.events import NodeGone, NodeSeen
from extender.model.names import NodeName, ResourceName
from extender.model.pods import Node


def _node(wire: NodeWire) -> Made:
    spec, status = wire.spec or NodeSpecWire(), wire.status or NodeStatusWire()
    problems: list[str] = []
    allocatable = []
    for name, value in sorted((status.allocatable or {}).items()):
        try:
            allocatable.append((ResourceName(name), request_amount(parse_quantity(str(value)), ResourceName(name))))
        except UserError as error:
            problems.append(str(error.inside(f"status.allocatable[{name}]")))
    node = Node(
        name=NodeName(wire.metadata.name),
        labels=labels_of(wire.metadata.labels),
        taints=tuple(rules.taint(taint) for taint in spec.taints or ()),
        allocatable=tuple(allocatable),
        unschedulable=bool(spec.unschedulable),
    )
    return NodeSeen(node), "; ".join(problems)


def _bare_node(identity: IdentityWire, problem: str) -> Made:
    """A node of which nothing can be read gives nothing: no pod is sent there."""
    return NodeSeen(Node(NodeName(identity.name), unschedulable=True)), problem


CODEC = TypedCodec(NodeWire, make=_node, bare=_bare_node, gone=lambda held: NodeGone(NodeName(held.key)))
