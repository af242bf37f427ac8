"""Watches all pods beside the product and checks, at every event, what must hold at every event.

It knows the quota and the rules, and nothing of the product's code: an admission is what the pod's annotation says for
this very pod, and it counts until the pod's containers have ended or the pod is gone before it got a node.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson

from tests.faults.lab import GPU, LEFT, POOL, RIGHT, TOTAL, Lab
from tests.rig import ApiError

Object = dict[str, Any]
ADMISSION = "cohort-extender.io/admission"
JOB_ADMISSION = "cohort-extender.io/unit-admission"
CONDITION = "cohort-extender.io/Admitted"
ALL_PODS = "/api/v1/pods"
EVICTED = "EvictionByEvictionAPI"


def admission_of(pod: Object) -> Object | None:
    """The admission that *pod* carries, None if it carries none of its own or of the Job that owns it."""
    annotations, owners = pod["metadata"].get("annotations", {}), pod["metadata"].get("ownerReferences", ())
    for name, key, uids in (
        (ADMISSION, "pod", [pod["metadata"]["uid"]]),
        (JOB_ADMISSION, "job", [owner["uid"] for owner in owners]),
    ):
        if name in annotations:
            found: Object = orjson.loads(annotations[name])
            return found if found[key] in uids else None
    return None


def flavor_of(given: Object) -> str:
    """The flavor of the GPUs that an admission gives."""
    flavors: Object = given if "flavors" in given else given["podSets"][0]
    return str(flavors["flavors"][GPU])


def has_ended(pod: Object) -> bool:
    """Whether it uses nothing any more."""
    leaving = "deletionTimestamp" in pod["metadata"] and "nodeName" not in pod["spec"]
    return leaving or pod["status"].get("phase") in ("Succeeded", "Failed")


def holds(pod: Object) -> int:
    """GPUs of the quota that it holds now."""
    return 0 if admission_of(pod) is None or has_ended(pod) else 1


def runs(pod: Object) -> bool:
    """Whether it is on a node and not on its way out; that its kubelet starts it is no matter of the product."""
    return "nodeName" in pod["spec"] and "deletionTimestamp" not in pod["metadata"] and not has_ended(pod)


def was_evicted(pod: Object) -> bool:
    """Whether the Eviction API told it to go."""
    return any(
        condition["type"] == "DisruptionTarget" and condition.get("reason") == EVICTED
        for condition in pod["status"].get("conditions", ())
    )


@dataclass
class Auditor:
    """``violations`` says what did not hold; ``peak`` is the most GPUs that were held at once.

    ``admitted`` are the pods that got an admission, in order; ``victims`` those that were evicted. ``decided_s``: when
    the newest of them was seen, on the monotonic clock.
    """

    lab: Lab
    violations: list[str] = field(default_factory=list)
    peak: int = 0
    admitted: dict[str, str] = field(default_factory=dict)
    victims: dict[str, str] = field(default_factory=dict)
    decided_s: float = 0.0
    _pods: dict[str, Object] = field(default_factory=dict)
    _pools: dict[str, str] = field(default_factory=dict)
    _version: str = ""

    async def run(self) -> None:
        """Watch until cancelled, through every restart of the API server."""
        nodes = await self.lab.rig.api.list("/api/v1/nodes")
        self._pools = {node["metadata"]["name"]: node["metadata"]["labels"].get(POOL, "") for node in nodes}
        while True:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                try:
                    await self._watch()
                except ApiError as error:
                    if error.status == 410:
                        self._version = ""
            await asyncio.sleep(0.1)

    async def _watch(self) -> None:
        api = self.lab.rig.api
        if not self._version:
            page = await api.get(ALL_PODS)
            self._version = page["metadata"]["resourceVersion"]
            listed = {item["metadata"]["uid"]: item for item in page["items"]}
            self._pods = {}
            for item in listed.values():
                self._see(item)
        events = api.watch(ALL_PODS, resource_version=self._version, timeout_s=60)
        async with contextlib.aclosing(events):
            async for kind, item in events:
                self._version = item["metadata"]["resourceVersion"]
                if kind == "DELETED":
                    self._gone(item)
                elif kind != "BOOKMARK":
                    self._see(item)

    def _gone(self, pod: Object) -> None:
        self._note(pod)
        self._pods.pop(pod["metadata"]["uid"], None)

    def _see(self, pod: Object) -> None:
        if pod["metadata"]["namespace"] not in (LEFT, RIGHT):
            return
        self._check(pod, self._pods.get(pod["metadata"]["uid"]))
        self._pods[pod["metadata"]["uid"]] = pod
        self._note(pod)
        held = sum(map(holds, self._pods.values()))
        self.peak = max(self.peak, held)
        if held > TOTAL:
            names = sorted(one["metadata"]["name"] for one in self._pods.values() if holds(one))
            self.violations.append(f"{held} GPUs of {TOTAL} are held, by {', '.join(names)}")

    def _note(self, pod: Object) -> None:
        uid, name = pod["metadata"]["uid"], f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        known = len(self.admitted) + len(self.victims)
        if admission_of(pod) is not None:
            self.admitted.setdefault(uid, name)
        if was_evicted(pod):
            self.victims.setdefault(uid, name)
        if len(self.admitted) + len(self.victims) > known:
            self.decided_s = time.monotonic()

    def _check(self, pod: Object, before: Object | None) -> None:
        name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        given, node = admission_of(pod), pod["spec"].get("nodeName")
        if before is not None and admission_of(before) not in (None, given):
            self.violations.append(f"{name}: its admission changed")
        if given is None:
            if node:
                self.violations.append(f"{name} is on node {node} without an admission")
            return
        flavor = flavor_of(given)
        if node and self._pools[node] != flavor:
            self.violations.append(f"{name} of flavor {flavor} is on node {node}")
        if not node and any(gate["name"] == ADMISSION for gate in pod["spec"].get("schedulingGates", ())):
            self.violations.append(f"{name} is admitted and still gated")

    # For the end of a test.

    def untold(self) -> list[str]:
        """The pods that wait without a reason, and those that are in and still say why they wait."""
        found = []
        for pod in self._pods.values():
            says = [one["status"] for one in pod["status"].get("conditions", ()) if one["type"] == CONDITION]
            if (
                JOB_ADMISSION not in pod["metadata"].get("annotations", {})
                and not has_ended(pod)
                and (says == ["False"]) != (admission_of(pod) is None)
            ):
                found.append(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}")
        return sorted(found)

    def halves(self, namespace: str) -> list[str]:
        """The groups of *namespace* of which some members hold quota and others do not."""
        groups: dict[str, set[int]] = {}
        for pod in self._pods.values():
            group = pod["metadata"].get("annotations", {}).get("kueue.x-k8s.io/pod-group-name")
            if group and pod["metadata"]["namespace"] == namespace and not has_ended(pod):
                groups.setdefault(group, set()).add(holds(pod))
        return sorted(name for name, found in groups.items() if len(found) > 1)
