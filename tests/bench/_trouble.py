"""Two replicas under a soak, and what goes wrong meanwhile.

Each replica reaches the API server through a front of its own, whose connections can be cut. Who asks for admission
reviews gets the first replica that is ready, as through a Service.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import yaml

from tests.bench._churn import Churn
from tests.bench._plan import Queue
from tests.bench._service import FLAVOR, KUEUE
from tests.e2e.installation import Replica
from tests.faults.lab import Lab
from tests.faults.proxy import Front
from tests.rig import ApiError, NodePool, Rig
from tests.rig.nodes import NODES

POOL = NodePool("node", 20)
ROTATE_S = 900.0
RESTART_S_MAX = 60.0
HELD_BACK_S = 10.0
"""How long a quota is lowered, and a node away."""
GOING_ON = (aiohttp.ClientError, TimeoutError, ApiError)


class Soaked(Lab):
    """The installation with two replicas, without scheduler, controllers and kubelets."""

    def __init__(self, rig: Rig, *, overlay: str) -> None:
        super().__init__(rig)
        self._overlay = overlay
        self._settings = {"logLevel": "warning", "fairSharing": None}
        self._ways: dict[str, Front] = {}

    async def open(self) -> None:
        """Start everything, and stop what is not needed."""
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5))
        for front in self._fronts.values():
            await front.start(self.rig.free_port())
        self._probing = asyncio.create_task(self._probe_for_ever())
        await self.install(replicas=2)
        for name in ("kube-scheduler", "kube-controller-manager", "kwok"):
            await self.rig.component(name).kill()

    async def close(self) -> None:
        """Stop what is ours."""
        await super().close()
        for way in self._ways.values():
            await way.close()

    async def credentials(self, replica: Replica) -> Path:
        """As in the lab, but over a front that only passes bytes on: a proxy keeps a record of every request."""
        file = await super().credentials(replica)
        port = int(self.rig.server.rsplit(":", 1)[1])
        way = self._ways[replica.name] = Front(lambda: [port])
        await way.start(self.rig.free_port())
        config = yaml.safe_load(file.read_text())
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{way.port}"
        file.write_text(yaml.safe_dump(config))
        return file

    def cut(self, replica: Replica) -> None:
        """Break its connections to the API server, watches among them."""
        self._ways[replica.name].cut()

    async def _keep_scheduler(self) -> None:
        """There is none."""


@dataclass
class Trouble:
    """``await run(seconds)``: two restarts early, then one fault after another. ``log`` says what was done when."""

    lab: Soaked
    churn: Churn
    queues: list[Queue]
    log: list[tuple[float, str]] = field(default_factory=list)

    async def run(self, seconds: float) -> None:
        """Go on until cancelled. Restarts of replicas come in the first tenth, so that memory can be compared after."""
        self._began = time.monotonic()
        rotating = asyncio.create_task(self._rotate())
        try:
            for replica in self.lab.replicas:
                await asyncio.sleep(seconds / 30)
                await self._restart(replica)
            every_s = max(10.0, seconds / 40)
            for act in itertools.cycle(self._acts()):
                await asyncio.sleep(every_s)
                with contextlib.suppress(*GOING_ON):  # an API server that is away answers nobody, us neither
                    await act()
        finally:
            rotating.cancel()

    def _acts(self) -> list[Callable[[], Awaitable[None]]]:
        return [
            self._cut_leader,
            self._lower_quota,
            self._cut_follower,
            self._node_leaves,
            self._restart_api_server,
            self._raise_quota,
        ]

    def _note(self, what: str) -> None:
        self.log.append((round(time.monotonic() - self._began, 1), what))

    async def _rotate(self) -> None:
        while True:
            await asyncio.sleep(ROTATE_S)
            for replica in self.lab.replicas:
                with contextlib.suppress(*GOING_ON):
                    await self.lab.rotate(replica)

    async def _restart(self, replica: Replica) -> None:
        led = ", which led," if await self.lab.leads(replica) else ""
        self._note(f"{replica.name}{led} was killed and started again")
        await self.lab.process(replica).restart()

    async def _cut_leader(self) -> None:
        leader = await self.lab.leader()
        self._note(f"connections of {leader.name}, which led, were cut")
        self.lab.cut(leader)

    async def _cut_follower(self) -> None:
        follower = self.lab.other(await self.lab.leader())
        self._note(f"connections of {follower.name}, which followed, were cut")
        self.lab.cut(follower)

    async def _restart_api_server(self) -> None:
        self._note("the API server was killed and started again")
        server = self.lab.rig.component("kube-apiserver")
        await server.kill()
        await server.start(wait=False)
        await server.wait_ready(RESTART_S_MAX)

    async def _node_leaves(self) -> None:
        number = len(self.log) % POOL.count
        node = next(itertools.islice(POOL.nodes(heartbeat_s=60), number, None))
        name = node["metadata"]["name"]
        self._note(f"{name} left and came back")
        await self.lab.rig.api.delete(f"{NODES}/{name}")
        await asyncio.sleep(HELD_BACK_S)
        await self.lab.rig.api.create(NODES, node)

    async def _lower_quota(self) -> None:
        await self._quota_for_a_while(lambda cores: max(1, cores // 2))

    async def _raise_quota(self) -> None:
        await self._quota_for_a_while(lambda cores: cores * 2)

    async def _quota_for_a_while(self, change: Callable[[int], int]) -> None:
        queue = self.queues[len(self.log) % len(self.queues)]
        cores, total = change(queue.nominal), self.churn.quota[queue.cohort]
        self._note(f"{queue.name} got {cores} instead of {queue.nominal} cores for {HELD_BACK_S:g} s")
        self.churn.lower(queue.cohort, total - queue.nominal + cores)
        try:
            await self._set_quota(queue, cores)
            await asyncio.sleep(HELD_BACK_S)
        finally:
            self.churn.lower(queue.cohort, total)
            await self._set_quota(queue, queue.nominal)

    async def _set_quota(self, queue: Queue, cores: int) -> None:
        quota = {"name": "cpu", "nominalQuota": cores}
        group = {"coveredResources": ["cpu"], "flavors": [{"name": FLAVOR, "resources": [quota]}]}
        await self.lab.rig.api.patch(f"{KUEUE}/clusterqueues/{queue.name}", {"spec": {"resourceGroups": [group]}})
