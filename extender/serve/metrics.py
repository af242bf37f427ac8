"""Counters, gauges and times, under the names of Kueue's metrics with the prefix ``cohort_``.

The driver calls the methods; nobody else knows the metric library. What has many series is kept apart from its
registry, since it has to be written in parts (``series``). Source: metrics specification, section 1.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from extender.serve.series import Metric, Numbers, Times

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_FAST = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5)
_WAITS = (1.0, *(2.5 * 2**power for power in range(13)))
_QUEUE = ["cluster_queue"]

M = TypeVar("M", bound=Metric)


class CallMeter:
    """Counts one kind of call: how it ended and how long it took."""

    def __init__(self, ended: Numbers, took: Times, name: str) -> None:
        self._ended = ended
        self._took = took
        self._name = name

    def count(self, outcome: str, seconds: float) -> None:
        """One call ended as *outcome* (an HTTP status, for webhooks a word)."""
        self._ended.count(self._name, outcome)
        self._took.observe(self._name, seconds=seconds)


class Metrics:
    """All metrics of one process."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()

        def one(name: str, text: str) -> Gauge:
            return Gauge(f"cohort_{name}", text, registry=registry)

        self._leader = one("leader", "1 while this replica may write.")
        self._lag = one("event_loop_lag_seconds", "Longest delay of the event loop since the last scrape.")
        self._held = one("event_loop_held_seconds", "Longest work of ours in one round of the loop since then.")
        self._not_after = one("certificate_not_after_timestamp_seconds", "End of the serving certificate.")

        many = self._many = list[Metric]()

        def put(metric: M) -> M:
            many.append(metric)
            return metric

        def counter(name: str, text: str, labels: list[str]) -> Numbers:
            return put(Numbers(f"cohort_{name}_total", text, "counter", labels))

        def gauge(name: str, text: str, labels: list[str]) -> Numbers:
            return put(Numbers(f"cohort_{name}", text, "gauge", labels))

        def times(name: str, text: str, labels: list[str], buckets: Iterable[float]) -> Times:
            return put(Times(f"cohort_{name}_seconds", text, labels, buckets))

        self._requests = counter("http_requests", "Requests by endpoint and outcome.", ["endpoint", "outcome"])
        self._took = times("http_request_duration", "Time inside the handler.", ["endpoint"], _FAST)
        self._attempts = counter("admission_attempts", "Cycles that admitted something, or not.", ["result"])
        self._attempt = times("admission_attempt_duration", "Time of a cycle.", ["result"], _FAST)
        self._violations = counter("invariant_violations", "Checks that failed; should stay 0.", ["invariant"])
        self._admitted = counter("admitted_workloads", "Admissions.", _QUEUE)
        self._wait = times("admission_wait_time", "From queued to admitted.", _QUEUE, _WAITS)
        self._evicted = counter("evicted_workloads", "Evictions decided.", [*_QUEUE, "reason"])
        self._preempted = counter("preempted_workloads", "Preemptions.", ["preempting_cluster_queue", "reason"])
        self._pending = gauge("pending_workloads", "Waiting, in the heap or parked.", [*_QUEUE, "status"])
        self._active = gauge("admitted_active_workloads", "Admitted and not finished.", _QUEUE)
        self._usage = gauge("cluster_queue_resource_usage", "Quota in use.", [*_QUEUE, "flavor", "resource"])
        self._share = gauge("cluster_queue_weighted_share", "Dominant share by weight, per mille.", _QUEUE)

    def calls(self, endpoint: str) -> CallMeter:
        """The meter of one endpoint, for example ``filter``."""
        return CallMeter(self._requests, self._took, endpoint)

    def attempt(self, *, admitted: bool, seconds: float) -> None:
        """A cycle ended."""
        result = "success" if admitted else "inadmissible"
        self._attempts.count(result)
        self._attempt.observe(result, seconds=seconds)

    def admitted(self, cluster_queue: str, *, waited_s: float) -> None:
        """A workload was admitted, *waited_s* after it was queued."""
        self._admitted.count(cluster_queue)
        self._wait.observe(cluster_queue, seconds=waited_s)

    def evicted(self, cluster_queue: str, *, reason: str, preempting: str | None = None) -> None:
        """A workload was told to stop; *preempting* is the ClusterQueue of its preemptor, if there is one."""
        self._evicted.count(cluster_queue, reason if preempting is None else "Preempted")
        if preempting is not None:
            self._preempted.count(preempting, reason)

    def pending(self, cluster_queue: str, *, active: int, inadmissible: int) -> None:
        """How many wait in a ClusterQueue."""
        self._pending.put(cluster_queue, "active", number=active)
        self._pending.put(cluster_queue, "inadmissible", number=inadmissible)

    def active(self, cluster_queue: str, count: int) -> None:
        """How many hold quota of a ClusterQueue."""
        self._active.put(cluster_queue, number=count)

    def usage(self, cluster_queue: str, flavor: str, resource: str, amount: float) -> None:
        """Quota in use, cores for cpu, units or bytes otherwise."""
        self._usage.put(cluster_queue, flavor, resource, number=amount)

    def share(self, cluster_queue: str, weighted_share: float) -> None:
        """The weighted share of a ClusterQueue."""
        self._share.put(cluster_queue, number=weighted_share)

    def forget(self, cluster_queue: str) -> None:
        """Drop the gauges of a ClusterQueue that was deleted."""
        for gauge in (self._pending, self._active, self._share, self._usage):
            gauge.forget(cluster_queue)

    def violated(self, invariant: str) -> None:
        """An invariant did not hold."""
        self._violations.count(invariant)

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

    def parts(self) -> Iterator[bytes]:
        """All of it, in the exposition format, piece by piece."""
        yield generate_latest(self._registry)
        for metric in self._many:
            for part in metric.parts():
                yield part.encode()

    def text(self) -> bytes:
        """All of it at once."""
        return b"".join(self.parts())
