"""What our admission costs the API server: ``python -m tests.bench admission``.

Two writes of a queued pod's life, the creation by its owner and the PATCH by which a replica admits it, with nothing
installed, with the policies of ``manifests/default`` and with ``manifests/base``, where the webhook marks. Each on a
control plane of its own, in rounds that alternate. ``--beside DIR`` measures another checkout's ``manifests/default``
in the same rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import Any

import orjson
import uvloop
from rich.console import Console
from rich.table import Table

from tests.bench._floor import GATE, create_namespace, in_flight
from tests.bench._machine import Figures, Machine, cpu_s
from tests.bench._raw import STRATEGIC, Raw, queued_pod
from tests.bench._service import install as install_service
from tests.manifests.cluster import MANIFESTS, install, policies_work, replica_token
from tests.rig import Rig

HERE = "lab"
PODS = f"/api/v1/namespaces/{HERE}/pods"
WARM_UP = 50
"""Requests that are not counted: the API server compiles and fills caches at the first ones."""
ADMISSION = (
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "MutatingWebhookConfiguration",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingWebhookConfiguration",
)
REST_CORES, REST_LOOK_S, REST_LOOKS = 0.1, 0.5, 6
"""The API server rests when it uses less than a tenth of a core, six times in a row."""
Variant = Callable[[Rig], Awaitable[None]]


def variants(beside: Path | None) -> dict[str, Variant]:
    """What is installed, by name."""

    async def nothing(rig: Rig) -> None:
        await install(rig, "default", drop=ADMISSION)

    async def policies(rig: Rig, manifests: Path = MANIFESTS) -> None:
        await install(rig, "default", manifests=manifests)
        await policies_work(rig, PODS)

    async def webhook(rig: Rig) -> None:
        await install_service(rig, settings={"logLevel": "warning"}, overlay="base")
        await policies_work(rig, PODS)

    found: dict[str, Variant] = {"nothing": nothing, "default": policies, "base": webhook}
    if beside is not None:
        found["beside"] = lambda rig: policies(rig, beside)
    return found


async def measure(variant: Variant, *, count: int) -> Figures:
    """CPU ms of the API server for a creation and for an admission, on a new control plane."""
    async with AsyncExitStack() as stack:
        rig = await stack.enter_async_context(Rig(nodes=(), scheduler=False))
        await create_namespace(rig, HERE)
        await variant(rig)
        owner = await stack.enter_async_context(Raw(rig.server, rig._tls))
        trust = ssl.create_default_context(cafile=rig.ca.cert)
        replica = await stack.enter_async_context(Raw(rig.server, trust, token=await replica_token(rig)))
        for part in ("kube-controller-manager", "kwok"):  # nothing for them to do here
            await rig.component(part).kill()
        pods = [orjson.dumps(_gated(f"pod-{number}")) for number in range(count + WARM_UP)]
        patch = _admission()
        writes: dict[str, Callable[[int], Awaitable[object]]] = {
            "create": lambda n: owner.must("POST", PODS, pods[n]),
            "admit": lambda n: replica.must("PATCH", f"{PODS}/pod-{n}", patch, kind=STRATEGIC),
        }
        found: Figures = {}
        server = rig.component("kube-apiserver").pid
        await _at_rest(server)
        for name, write in writes.items():
            await in_flight(WARM_UP, lambda n, write=write: write(n + count))
            began = cpu_s(server)
            await in_flight(count, write)
            found[name] = round((cpu_s(server) - began) / count * 1e3, 3)
        return found


async def _at_rest(server: int) -> None:
    """Wait until the API server has done what an installation gives it to do: schemas, compiled policies."""
    began, rested = cpu_s(server), 0
    while rested < REST_LOOKS:
        await asyncio.sleep(REST_LOOK_S)
        now = cpu_s(server)
        rested = rested + 1 if now - began < REST_CORES * REST_LOOK_S else 0
        began = now


def _gated(name: str) -> dict[str, Any]:
    """A pod that names a queue. It has the gate already, so that the PATCH is the same where nothing is installed."""
    pod = queued_pod(name, queue="none", cpu=1)
    pod["spec"]["schedulingGates"] = [{"name": GATE}]
    return pod


def _admission() -> bytes:
    spec = {"schedulingGates": [{"$patch": "delete", "name": GATE}], "nodeSelector": {"pool": "a100"}}
    return orjson.dumps({"metadata": {"annotations": {GATE: "x" * 200}}, "spec": spec})


async def run(asked: argparse.Namespace) -> dict[str, Any]:
    """All rounds; the figures of each and their medians."""
    parts = variants(asked.beside)
    rounds: dict[str, list[Figures]] = {name: [] for name in parts}
    for number in range(asked.rounds):
        for name, variant in parts.items():
            rounds[name].append(await measure(variant, count=asked.count))
            print(f"round {number + 1}, {name}: {rounds[name][-1]}", flush=True)
    medians = {
        name: {write: median(one[write] for one in found) for write in found[0]} for name, found in rounds.items()
    }
    return {"count": asked.count, "cpu_ms": medians, "rounds": rounds}


def main(argv: list[str]) -> int:
    """Measure, print, and write JSON."""
    options = argparse.ArgumentParser(prog="python -m tests.bench admission", description=__doc__)
    options.add_argument("--count", type=int, default=1000, metavar="N", help="requests of each kind")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--beside", type=Path, metavar="DIR", help="another manifests folder to compare with")
    options.add_argument("--json", type=Path, metavar="FILE")
    asked = options.parse_args(argv)
    with Machine() as machine:
        found = uvloop.run(run(asked))
    found["load"] = machine.load
    table = Table("CPU ms of the API server", "a queued pod created", "a pod admitted")
    for name, figures in found["cpu_ms"].items():
        table.add_row(name, f"{figures['create']:.2f}", f"{figures['admit']:.2f}")
    Console().print(table)
    print(machine.load)
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1))
    return 0
