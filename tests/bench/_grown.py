"""A state of a given size, taken in as at a start, and what it costs from then on: one JSON object on standard output.

``python -m tests.bench._grown PENDING QUEUES NODES``. In a process of its own, so that memory is its own. Pods and
nodes come as the bytes of a list, through the shipped decoders, books, engine and driver; only the network is left
out.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator

import msgspec
import orjson

from extender.collector import keep_what_is_held, quiet_the_collector
from extender.driver import Driver
from extender.engine.engine import Engine
from extender.jobs.placement import JobPlacement
from extender.jobs.shelf import Shelf
from extender.kube import resources
from extender.kube.reflector import Reflector
from extender.model.effects import Effect, UngatePod
from extender.model.events import ClusterQueueSeen, Event, FlavorSeen, LocalQueueSeen, NamespaceSeen, PodGone, PodSeen
from extender.model.names import (
    CPU,
    ClusterQueueName,
    CohortName,
    LocalQueueName,
    NodeName,
    PodUid,
    ResourceName,
)
from extender.model.pods import ADMISSION_ANNOTATION
from extender.model.quota import (
    ClusterQueue,
    FlavorQuotas,
    LocalQueue,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    Selector,
)
from extender.model.workload import Admission, PodSetAssignment
from extender.pods.admission import write_admission
from extender.pods.intake import MAIN
from extender.serve.extender import Extender
from extender.serve.metrics import Metrics
from extender.settings import read_settings
from extender.telemetry import set_up_logging
from extender.teller import EXPLAINED_MAX
from tests.bench._cluster import FLAVOR, GPU, LABELS, NAMESPACE, question_pod
from tests.bench._machine import quantile, rss_mb
from tests.support.objects import node_json, pod_json

RUNNING = 1_000
PER_COHORT = 10
ROUNDS = 200
QUESTIONS = 300
AT_MS = 1_775_000_000_000
"""Later than every pod was created."""
MEMORY = ResourceName("memory")
REQUESTS = ((CPU, 8_000), (MEMORY, 32 << 30), (GPU, 1))
ASKED = PodUid("uid-pod-0")
Figures = dict[str, float]


def quota(queues: int) -> Iterator[Event]:
    """One flavor and *queues* queues, whose quota is what runs already."""
    yield FlavorSeen(ResourceFlavor(FLAVOR, LABELS))
    yield NamespaceSeen(NAMESPACE, ())
    for number in range(queues):
        runs = RUNNING // queues + (number < RUNNING % queues)
        name = ClusterQueueName(f"cq-{number}")
        quotas = FlavorQuotas(FLAVOR, tuple((resource, Quota(amount * runs)) for resource, amount in REQUESTS))
        group = ResourceGroup(tuple(resource for resource, _ in REQUESTS), (quotas,))
        cohort = CohortName(f"cohort-{number // PER_COHORT}")
        yield ClusterQueueSeen(
            ClusterQueue(name, cohort=cohort, resource_groups=(group,), namespace_selector=Selector())
        )
        yield LocalQueueSeen(LocalQueue(NAMESPACE, LocalQueueName(f"lq-{number}"), name))


def pods(pending: int, queues: int) -> Iterator[bytes]:
    """*RUNNING* admitted pods on nodes, then *pending* gated ones, spread over the queues."""
    for number in range(RUNNING + pending):
        pod = pod_json(f"pod-{number}", uid=f"uid-pod-{number}", namespace=NAMESPACE)
        pod["metadata"]["annotations"]["kueue.x-k8s.io/queue-name"] = f"lq-{number % queues}"
        if number < RUNNING:
            pod["metadata"]["annotations"][ADMISSION_ANNOTATION] = admission(
                PodUid(f"uid-pod-{number}"), number % queues
            )
            pod["metadata"]["labels"]["cohort-extender.io/managed"] = "true"
            del pod["spec"]["schedulingGates"]
            pod["spec"]["nodeSelector"] = dict(LABELS)
            if number:  # the first is the one that is asked about
                pod["spec"]["nodeName"] = "node-0"
                pod["status"]["phase"] = "Running"
        yield orjson.dumps(pod)


def admission(uid: PodUid, queue: int) -> str:
    """What stands on an admitted pod."""
    given = PodSetAssignment(MAIN, tuple((name, FLAVOR) for name, _ in REQUESTS), REQUESTS, 1)
    return write_admission(uid, MAIN, Admission(ClusterQueueName(f"cq-{queue}"), (given,), AT_MS))


class State:
    """The service without its network."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self._reflectors: list[Reflector] = []
        self.books = Shelf(read_settings(None).kinds())
        self.engine = Engine(read_settings(None).policy())
        self.now_ms = AT_MS
        self.driver = Driver(
            engine=self.engine,
            books=self.books,
            submit=self.effects.append,
            clock_ms=lambda: self.now_ms,
            meter=Metrics(),
        )
        self.driver.lead(True)

    def take_list(self, resource: resources.Resource, items: Iterable[bytes]) -> float:
        """Take a list in, item by item; the CPU seconds that took."""
        reflector = Reflector(resource.codec, randomness=lambda: 0.5)
        reflector.list_started()
        spent_s = 0.0
        for item in items:
            began_s = time.process_time()
            self.driver.take(reflector.listed(item))
            spent_s += time.process_time() - began_s
        reflector.list_ended("1")
        self._reflectors.append(reflector)  # what it holds is memory of the service, too
        return spent_s

    def turn(self, *facts: Event) -> float:
        """Take *facts* and decide; the CPU seconds that took."""
        self.now_ms += 20
        self.effects.clear()
        began_s = time.process_time()
        if facts:
            self.driver.take(facts)
        self.driver.turn()
        return time.process_time() - began_s

    def admitted(self) -> list[Event]:
        """What the watch shows once the admissions of the last turn are written."""
        found: list[Event] = []
        for effect in self.effects:
            pod = self.books.pod(effect.uid) if isinstance(effect, UngatePod) else None
            if isinstance(effect, UngatePod) and pod is not None:
                found.append(PodSeen(msgspec.structs.replace(pod, gates=(), admission=effect.admission)))
        return found


async def measure(pending: int, queues: int, nodes: int) -> Figures:
    """Take it in, let one pod after the other end, and ask about one."""
    state, base_mb = State(), rss_mb(os.getpid())
    began_s = time.process_time()
    state.driver.take(quota(queues))
    restart_s = time.process_time() - began_s
    restart_s += state.take_list(
        resources.nodes(), (orjson.dumps(node_json(f"node-{number}")) for number in range(nodes))
    )
    restart_s += state.take_list(resources.pods(), pods(pending, queues))
    began_s = time.process_time()
    keep_what_is_held()
    restart_s += time.process_time() - began_s
    restart_s += state.turn()
    assert state.admitted() == [], "the quota is in use"
    for _ in range(pending // EXPLAINED_MAX + 1):
        state.turn()  # those that wait behind others get their reasons in turn
    grown_mb = rss_mb(os.getpid())
    passes_s, let_in = [], 0
    for number in range(1, ROUNDS + 1):
        passes_s.append(state.turn(PodGone(PodUid(f"uid-pod-{number}"))))
        shown = state.admitted()
        let_in += len(shown)
        state.turn(*shown)
    assert let_in == ROUNDS, f"{let_in} were admitted where {ROUNDS} ended"
    asked_ms = questions(state, nodes)
    return {
        "pending": pending,
        "queues": queues,
        "nodes": nodes,
        "pass_ms": round(quantile(passes_s, 0.5) * 1e3, 2),
        "pass_p99_ms": round(quantile(passes_s, 0.99) * 1e3, 2),
        "memory_mb": round(grown_mb, 1),
        "state_mb": round(grown_mb - base_mb, 1),
        "restart_s": round(restart_s, 2),
        "filter_ms": round(quantile(asked_ms, 0.5), 2),
        "filter_p99_ms": round(quantile(asked_ms, 0.99), 2),
    }


def questions(state: State, nodes: int) -> list[float]:
    """CPU milliseconds of each answer to filter, from bytes to bytes, all nodes named."""
    extender = Extender(JobPlacement(state.books, state.engine))
    pod = question_pod()
    pod["metadata"] |= {"uid": ASKED, "name": "pod-0"}
    pod["metadata"]["annotations"] |= {
        "kueue.x-k8s.io/queue-name": "lq-0",
        ADMISSION_ANNOTATION: admission(ASKED, 0),
    }
    names = [NodeName(f"node-{number}") for number in range(nodes)]
    body = orjson.dumps({"Pod": pod, "Nodes": None, "NodeNames": names})
    took_ms = []
    for _ in range(QUESTIONS):
        began_s = time.thread_time()
        reply = extender.filter(body)
        took_ms.append((time.thread_time() - began_s) * 1e3)
    assert orjson.loads(reply.body)["NodeNames"] == names, reply.body[:500]
    return took_ms


if __name__ == "__main__":
    set_up_logging("warning", "console")
    quiet_the_collector()
    print(json.dumps(asyncio.run(measure(*map(int, sys.argv[1:4])))))
