"""A writer at work on the fake API server, and short forms of what it is given."""

import asyncio
import contextlib

from extender.kube.outbox import Pace
from extender.kube.writer import Writer
from extender.model.effects import (
    EvictionReason,
    EvictPod,
    SetPodCondition,
    UngatePod,
)
from tests.support.clock import FakeClock
from tests.support.fake_api import until

PODS = "/api/v1/pods"
GATE = "cohort-extender.io/admission"
FAST = Pace(conditions_per_s=1000, conditions_burst=1000, events_per_s=1000, events_burst=1000)


class Desk:
    """A writer at work, and what it told."""

    def __init__(self, client, *, pace=FAST, **options):
        self.clock = FakeClock()
        self.outcomes = []
        self.leads = True
        self.ended = set()
        self.writer = Writer(
            client,
            lambda effect, outcome: self.outcomes.append((effect, outcome)),
            may_write=lambda: self.leads,
            has_ended=lambda uid: uid in self.ended,
            pace=pace,
            clock=self.clock,
            wall_clock=lambda: 1772353815.0,
            sleep=self.clock.sleep,
            randomness=lambda: 0.5,
            **options,
        )

    async def does(self, *effects):
        """Submit *effects*; the outcomes of all so far, once each has one."""
        want = len(self.outcomes) + len(effects)
        for effect in effects:
            self.writer.submit(effect)
        await until(lambda: len(self.outcomes) >= want)
        return [outcome for _, outcome in self.outcomes[-len(effects) :]]

    async def kind(self, effect):
        """Submit *effect*; how it ended."""
        (outcome,) = await self.does(effect)
        return outcome.kind


@contextlib.asynccontextmanager
async def desk_of(client, **options):
    made = Desk(client, **options)
    task = asyncio.create_task(made.writer.run())
    yield made
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def ungate(pod, **changes):
    meta = pod["metadata"]
    fields = {
        "workload": "w",
        "uid": meta["uid"],
        "namespace": meta["namespace"],
        "name": meta["name"],
        "resource_version": meta["resourceVersion"],
        "admission": '{"clusterQueue":"training"}',
        "node_selector": (("gpu", "a100"),),
        "tolerations": None,
    }
    return UngatePod(**{**fields, **changes})


def evict(pod, **changes):
    meta = pod["metadata"]
    fields = {"uid": meta["uid"], "namespace": meta["namespace"], "name": meta["name"]}
    return EvictPod(
        **{"workload": "w", "reason": EvictionReason.IN_CLUSTER_QUEUE, "message": "why", **fields, **changes}
    )


def condition(pod, message="waits", *, status=False):
    meta = pod["metadata"]
    return SetPodCondition(meta["uid"], meta["namespace"], meta["name"], status, "QuotaUsed", message)


def stored(api, name="p"):
    return api.get(PODS, f"research/{name}")
