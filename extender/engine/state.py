"""One cluster queue as the cycle sees it: its place in the tree, what waits in it, and its plans."""

from collections.abc import Mapping

from extender.engine.flavors import Plan, Scan, make_plan
from extender.engine.hierarchy import Leaf
from extender.engine.queues import Pending, PendingQueue, Progress, Shape
from extender.model.names import ClusterQueueName, FlavorName, FlavorResource
from extender.model.policy import Policy
from extender.model.quota import QueueingStrategy, ResourceFlavor

_PLANS_MAX = 4096


class Hold:
    """Room kept for a waiting preemptor: what it was assigned, by flavor-resource.

    ``flavors`` are those it was assigned, per pod set and resource group.
    """

    __slots__ = ("flavors", "pending", "usage")

    def __init__(self, pending: Pending, *, usage: dict[FlavorResource, int], flavors: list[list[FlavorName]]) -> None:
        self.pending = pending
        self.usage = usage
        self.flavors = flavors


class ClusterQueueState:
    """A cluster queue. ``inactive``: why it decides nothing, empty if it does; ``hold``: room kept for its head."""

    __slots__ = ("_plans", "_scan", "hold", "inactive", "leaf", "name", "pending", "strict")

    def __init__(self, name: ClusterQueueName, leaf: Leaf) -> None:
        self.name = name
        self.leaf = leaf
        self.pending = PendingQueue()
        self.inactive = ""
        self.hold: Hold | None = None
        self.strict = False
        self._plans: dict[Shape, Plan] = {}
        self._scan: Scan | None = None

    def renew(self) -> None:
        """Its spec, or a flavor it uses, changed: plans have to be made again."""
        self._plans.clear()
        self._scan = None
        self.strict = self.leaf.spec is not None and self.leaf.spec.strategy is QueueingStrategy.STRICT_FIFO

    def plan(self, shape: Shape, flavors: Mapping[FlavorName, ResourceFlavor]) -> Plan:
        """The plan of *shape* here, from a bounded cache."""
        plan = self._plans.get(shape)
        if plan is None:
            if len(self._plans) >= _PLANS_MAX:
                self._plans.clear()
            plan = self._plans[shape] = make_plan(self.leaf, shape, flavors)
        return plan

    def scan(self, policy: Policy) -> Scan:
        """The rules by which its flavors are scanned."""
        if self._scan is None:
            self._scan = Scan(self.leaf, fair_sharing=bool(policy.fair_sharing), truthful=policy.fit_means_all)
        return self._scan

    def progress_of(self, pending: Pending, cycle: int) -> Progress | None:
        """Where the scan of *pending* goes on, None if at the start. Follows: flavor specification, section 7."""
        if pending.progress is None:
            return None
        fresh = pending.progress_cycle >= cycle - 1 or pending.progress_generation == self.leaf.generation
        return pending.progress if fresh else None
