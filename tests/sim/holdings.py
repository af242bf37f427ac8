"""Who holds how much quota, read off pods and their annotations: the truth that decisions are measured against."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from extender.model.names import ClusterQueueName, FlavorName, FlavorResource, PodUid, ResourceName
from extender.model.pods import Pod
from tests.sim.api import written_for
from tests.sim.plain import queue_usage

Written = Mapping[str, Any]


class Holding(NamedTuple):
    """What one workload holds."""

    queue: ClusterQueueName
    amounts: dict[FlavorResource, int]


def uid_of(pod: Pod) -> str:
    """The workload of a pod: its group, or itself."""
    return f"group:{pod.namespace}/{pod.group}" if pod.group else pod.uid


def by_workload(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    """Pods by the workload that they belong to."""
    found: dict[str, list[Pod]] = {}
    for pod in pods:
        found.setdefault(uid_of(pod), []).append(pod)
    return found


def holdings(pods: Iterable[Pod], in_flight: Mapping[PodUid, Written]) -> dict[str, Holding]:
    """What each workload holds by the annotations of its live pods, and by those that are being written to them."""
    found = {}
    for uid, members in by_workload(pods).items():
        live = [pod for pod in members if not pod.ended]
        written = [text for pod in live if (text := written_for(pod) or in_flight.get(pod.uid))]
        if written:
            found[uid] = _holding(max(written, key=lambda text: text["atMs"]), members)
    return found


def _holding(written: Written, members: list[Pod]) -> Holding:
    succeeded = [pod for pod in members if pod.phase == "Succeeded"]
    amounts = []
    for given in written["podSets"]:
        done = sum(
            (text := written_for(pod)) is not None
            and (text["podSet"], text["atMs"]) == (given["name"], written["atMs"])
            for pod in succeeded
        )
        left = given["count"] - min(done, given["count"])
        for resource, amount in given["usage"].items():
            share = amount if not done else amount // given["count"] * left
            amounts.append((ResourceName(resource), FlavorName(given["flavors"][resource]), share))
    return Holding(ClusterQueueName(written["clusterQueue"]), queue_usage(amounts))
