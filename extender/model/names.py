"""A type for every kind of name, so that a cohort is never passed where a cluster queue is meant."""

from typing import NamedTuple, NewType

FlavorName = NewType("FlavorName", str)
ResourceName = NewType("ResourceName", str)
CohortName = NewType("CohortName", str)
ClusterQueueName = NewType("ClusterQueueName", str)
LocalQueueName = NewType("LocalQueueName", str)
Namespace = NewType("Namespace", str)
WorkloadUid = NewType("WorkloadUid", str)
PodUid = NewType("PodUid", str)
NodeName = NewType("NodeName", str)


class FlavorResource(NamedTuple):
    """One kind of quota: *resource* on nodes of *flavor*. All quota arithmetic is done per flavor-resource."""

    flavor: FlavorName
    resource: ResourceName


class LocalQueueKey(NamedTuple):
    """A LocalQueue: its namespace and its name."""

    namespace: Namespace
    name: LocalQueueName


CPU = ResourceName("cpu")
PODS = ResourceName("pods")
