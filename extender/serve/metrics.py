"""Counters, gauges and times in one registry, under the names of Kueue's metrics with the prefix ``cohort_``.

The driver calls the methods; nobody else knows the metric library. Source: metrics specification, section 1.
"""

from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_FAST = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5)
_WAITS = (1.0, *(2.5 * 2**power for power in range(13)))
_QUEUE = ["cluster_queue"]


class CallMeter:
    """Counts one kind of call: how it ended and how long it took."""

    def __init__(self, ended: Counter, took: Histogram, name: str) -> None:
        self._ended = ended
        self._took = took.labels(name)
        self._name = name
        self._children: dict[str, Counter] = {}

    def count(self, outcome: str, seconds: float) -> None:
        """One call ended as *outcome* (an HTTP status, for webhooks a word)."""
        child = self._children.get(outcome)
        if child is None:
            child = self._children[outcome] = self._ended.labels(self._name, outcome)
        child.inc()
        self._took.observe(seconds)


class Metrics:
    """All metrics of one process."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()

        def counter(name: str, text: str, labels: list[str]) -> Counter:
            return Counter(f"cohort_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, labels: list[str]) -> Gauge:
            return Gauge(f"cohort_{name}", text, labels, registry=registry)

        def times(name: str, text: str, labels: list[str], buckets: Iterable[float]) -> Histogram:
            return Histogram(f"cohort_{name}_seconds", text, labels, buckets=tuple(buckets), registry=registry)

        self._requests = counter("http_requests", "Requests by endpoint and outcome.", ["endpoint", "outcome"])
        self._took = times("http_request_duration", "Time inside the handler.", ["endpoint"], _FAST)
        self._attempts = counter("admission_attempts", "Cycles that admitted something, or not.", ["result"])
        self._attempt = times("admission_attempt_duration", "Time of a cycle.", ["result"], _FAST)
        self._admitted = counter("admitted_workloads", "Admissions.", _QUEUE)
        self._wait = times("admission_wait_time", "From queued to admitted.", _QUEUE, _WAITS)
        self._evicted = counter("evicted_workloads", "Evictions decided.", [*_QUEUE, "reason"])
        self._preempted = counter("preempted_workloads", "Preemptions.", ["preempting_cluster_queue", "reason"])
        self._pending = gauge("pending_workloads", "Waiting, in the heap or parked.", [*_QUEUE, "status"])
        self._active = gauge("admitted_active_workloads", "Admitted and not finished.", _QUEUE)
        self._usage = gauge("cluster_queue_resource_usage", "Quota in use.", [*_QUEUE, "flavor", "resource"])
        self._share = gauge("cluster_queue_weighted_share", "Dominant share by weight, per mille.", _QUEUE)
        self._violations = counter("invariant_violations", "Checks that failed; should stay 0.", ["invariant"])
        self._leader = gauge("leader", "1 while this replica may write.", [])
        self._lag = gauge("event_loop_lag_seconds", "Longest delay of the event loop since the last scrape.", [])
        self._held = gauge("event_loop_held_seconds", "The part of such a delay that was our own work.", [])
        self._not_after = gauge("certificate_not_after_timestamp_seconds", "End of the serving certificate.", [])

    def calls(self, endpoint: str) -> CallMeter:
        """The meter of one endpoint, for example ``filter``."""
        return CallMeter(self._requests, self._took, endpoint)

    def attempt(self, *, admitted: bool, seconds: float) -> None:
        """A cycle ended."""
        result = "success" if admitted else "inadmissible"
        self._attempts.labels(result).inc()
        self._attempt.labels(result).observe(seconds)

    def admitted(self, cluster_queue: str, *, waited_s: float) -> None:
        """A workload was admitted, *waited_s* after it was queued."""
        self._admitted.labels(cluster_queue).inc()
        self._wait.labels(cluster_queue).observe(waited_s)

    def evicted(self, cluster_queue: str, *, reason: str, preempting: str | None = None) -> None:
        """A workload was told to stop; *preempting* is the ClusterQueue of its preemptor, if there is one."""
        self._evicted.labels(cluster_queue, reason if preempting is None else "Preempted").inc()
        if preempting is not None:
            self._preempted.labels(preempting, reason).inc()

    def pending(self, cluster_queue: str, *, active: int, inadmissible: int) -> None:
        """How many wait in a ClusterQueue."""
        self._pending.labels(cluster_queue, "active").set(active)
        self._pending.labels(cluster_queue, "inadmissible").set(inadmissible)

    def active(self, cluster_queue: str, count: int) -> None:
        """How many hold quota of a ClusterQueue."""
        self._active.labels(cluster_queue).set(count)

    def usage(self, cluster_queue: str, flavor: str, resource: str, amount: float) -> None:
        """Quota in use, cores for cpu, units or bytes otherwise."""
        self._usage.labels(cluster_queue, flavor, resource).set(amount)

    def share(self, cluster_queue: str, weighted_share: float) -> None:
        """The weighted share of a ClusterQueue."""
        self._share.labels(cluster_queue).set(weighted_share)

    def forget(self, cluster_queue: str) -> None:
        """Drop the gauges of a ClusterQueue that was deleted."""
        for status in ("active", "inadmissible"):
            self._pending.remove_by_labels({"cluster_queue": cluster_queue, "status": status})
        for gauge in (self._active, self._share, self._usage):
            gauge.remove_by_labels({"cluster_queue": cluster_queue})

    def violated(self, invariant: str) -> None:
        """An invariant did not hold."""
        self._violations.labels(invariant).inc()

    def leading(self, leads: bool) -> None:
        """Whether this replica is the one that writes."""
        self._leader.set(leads)

    def certificate(self, not_after_s: float) -> None:
        """When the serving certificate ends, seconds since the epoch."""
        self._not_after.set(not_after_s)

    def watch_loop(self, *, lag_s: Callable[[], float], held_s: Callable[[], float]) -> None:
        """Ask these at each scrape how long the event loop was held up since the one before."""
        self._lag.set_function(lag_s)
        self._held.set_function(held_s)

    def text(self) -> bytes:
        """All of it, in the exposition format."""
        return generate_latest(self.registry)
