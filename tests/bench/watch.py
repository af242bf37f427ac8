"""Watch bytes to engine fact: CPU per pod event, and how long the loop stands still.

``python -m tests.bench watch [--events N] [--json FILE]``. Three measures: the machine alone on lines in memory (the
number of the goal, at most 15 µs), the whole way from a server in another process, and the longest stall of the loop
while a large list is taken in (goal: 5 ms).
"""

import argparse
import asyncio
import json
import multiprocessing
import statistics
import time
from multiprocessing.connection import Connection
from pathlib import Path

import orjson
from aiohttp import web

from extender.kube.client import ApiClient
from extender.kube.config import ClusterConfig
from extender.kube.reflector import Reflector
from extender.kube.resources import pods
from extender.kube.watch import Watcher
from extender.model.events import Event
from tests.support.objects import pod_json

ROUNDS = 5
GOAL_US = 15.0
GOAL_STALL_MS = 5.0


def watch_lines(count: int) -> list[bytes]:
    """ADDED for *count* pods of three namespaces."""
    lines = []
    for index in range(count):
        pod = pod_json(f"train-{index}", version=str(1000 + index), namespace=f"team-{index % 3}")
        lines.append(orjson.dumps({"type": "ADDED", "object": pod}))
    return lines


def machine_us(lines: list[bytes]) -> float:
    """CPU µs per event from a line in memory to facts; the median of the rounds."""
    rounds = []
    for _ in range(ROUNDS):
        machine = Reflector(pods().codec, randomness=lambda: 0.5)
        machine.list_started()
        machine.list_ended("1")
        machine.watch_opened(0.0)
        began = time.process_time()
        facts = sum(len(machine.received(line)) for line in lines)
        rounds.append((time.process_time() - began) / len(lines) * 1e6)
        assert facts == len(lines)
    return statistics.median(rounds)


def _serve(events: int, pipe: Connection) -> None:
    """A server in its own process: one list of *events* pods in pages, one watch of as many further ones."""
    lines = watch_lines(events)
    objects = [orjson.loads(line)["object"] for line in lines]

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            response = web.StreamResponse()
            await response.prepare(request)
            data = b"\n".join(line.replace(b"train-", b"later-") for line in lines) + b"\n"
            for start in range(0, len(data), 64 * 1024):
                await response.write(data[start : start + 64 * 1024])
            await asyncio.sleep(3600)
            return response
        start, limit = int(request.query.get("continue", "0")), int(request.query["limit"])
        meta = {"resourceVersion": "1"}
        if start + limit < len(objects):
            meta["continue"] = str(start + limit)
        body = orjson.dumps({"metadata": meta, "items": objects[start : start + limit]})
        return web.Response(body=body, content_type="application/json")

    async def serve() -> None:
        app = web.Application()
        app.router.add_get("/api/v1/pods", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        pipe.send(runner.addresses[0][1])
        await asyncio.sleep(3600)

    asyncio.run(serve())


async def _stall_s(stop: asyncio.Event) -> float:
    """The longest time for which the loop worked without coming round, in CPU seconds of its thread.

    CPU, since on a shared machine the wall clock shows the time slices of the neighbours.
    """
    longest, last = 0.0, time.thread_time()
    while not stop.is_set():
        await asyncio.sleep(0)
        now = time.thread_time()
        longest, last = max(longest, now - last), now
    return longest


async def whole_way(port: int, events: int, *, meter: bool) -> tuple[float, float, float]:
    """CPU µs per listed pod, CPU µs per watched pod, and the longest stall in ms (0 unless *meter*ed)."""
    facts = 0
    done = asyncio.Event()

    def sink(told: list[Event]) -> None:
        nonlocal facts
        facts += len(told)
        if facts >= 2 * events:
            done.set()

    client = ApiClient(ClusterConfig(server=f"http://127.0.0.1:{port}"))
    watcher = Watcher(client, pods(), sink)
    stop = asyncio.Event()
    gauge = asyncio.create_task(_stall_s(stop)) if meter else None
    began = time.process_time()
    task = asyncio.create_task(watcher.run())
    await watcher.synced.wait()
    listed = time.process_time()
    await done.wait()
    watched = time.process_time()
    stop.set()
    stall_s = await gauge if gauge else 0.0
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await client.close()
    return (listed - began) / events * 1e6, (watched - listed) / events * 1e6, stall_s * 1e3


def main(argv: list[str]) -> int:
    """Measure, print, and write JSON if asked to."""
    options = argparse.ArgumentParser(prog="python -m tests.bench watch", description=__doc__)
    options.add_argument("--events", type=int, default=10_000)
    options.add_argument("--json", type=Path)
    asked = options.parse_args(argv)

    lines = watch_lines(asked.events)
    machine = machine_us(lines)
    here, there = multiprocessing.get_context("spawn").Pipe()
    server = multiprocessing.get_context("spawn").Process(target=_serve, args=(asked.events, there), daemon=True)
    server.start()
    port = here.recv()
    rounds = [asyncio.run(whole_way(port, asked.events, meter=False)) for _ in range(3)]
    stall = min(asyncio.run(whole_way(port, asked.events, meter=True))[2] for _ in range(3))
    server.kill()
    server.join()
    found = {
        "events": asked.events,
        "bytes_per_event": round(statistics.mean(map(len, lines))),
        "us_per_event": round(machine, 2),
        "us_per_event_goal": GOAL_US,
        "stream_us_per_event": round(statistics.median(one[1] for one in rounds), 2),
        "list_us_per_pod": round(statistics.median(one[0] for one in rounds), 2),
        "stall_ms_max": round(stall, 2),
        "stall_ms_goal": GOAL_STALL_MS,
    }
    print(f"watch line to fact            {found['us_per_event']:8} µs  (goal {GOAL_US})")
    print(f"socket to fact, watch         {found['stream_us_per_event']:8} µs")
    print(f"socket to fact, list          {found['list_us_per_pod']:8} µs")
    print(f"longest stall of the loop     {found['stall_ms_max']:8} ms  (goal {GOAL_STALL_MS})")
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0
