"""What the facts of a watch add up to, and a watcher at work."""

import asyncio
import contextlib

from extender.kube.resources import pods
from extender.kube.watch import Watcher
from extender.model.events import PodGone, PodSeen
from tests.support.clock import FakeClock

PODS = "/api/v1/pods"


class Seen:
    """Collects facts; what it holds is what the facts add up to."""

    def __init__(self):
        self.pods = {}
        self.facts = []
        self.problems = []

    def sink(self, facts):
        self.facts += facts
        for fact in facts:
            match fact:
                case PodSeen(pod):
                    self.pods[pod.uid] = pod.name
                case PodGone(uid):
                    del self.pods[uid]

    def report(self, resource, problem):
        self.problems.append(problem)

    @property
    def names(self):
        return sorted(self.pods.values())


@contextlib.asynccontextmanager
async def watching(client, seen, resource=None, **options):
    clock = FakeClock()
    options = {"clock": clock, "sleep": clock.sleep, "randomness": lambda: 0.5, "silence_s": 5, **options}
    watcher = Watcher(client, resource or pods(), seen.sink, report=seen.report, **options)
    task = asyncio.create_task(watcher.run())
    try:
        yield watcher
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
