"""Whatever is sent to the service's ports, it goes on answering and its memory stays bounded."""

from __future__ import annotations

import asyncio
import contextlib
import io
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator

import aiohttp
import orjson
import pytest

from tests.bench._machine import rss_mb
from tests.serve.doubles import ENVELOPE, GOLDEN, golden
from tests.serve.fuzzed import BODY_MAX, EXTENDER, WEBHOOKS

WARM = 1_000
"""Inputs after which caches and pools are as large as they get."""
GROWTH_MB_MAX = 24.0
PEAK_MB_MAX = 160.0
"""Above the beginning: sixteen bodies of 8 MB that are read and looked at, at once."""
AT_ONCE = 16
HUGE_EVERY = 1_000
TOO_LARGE = 413


@pytest.fixture
async def ports() -> AsyncIterator[tuple[asyncio.subprocess.Process, dict[str, int]]]:
    """The listeners in a process of their own: the port of each path."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.serve.fuzzed", stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    extender, webhook = map(int, (await process.stdout.readline()).split())
    try:
        yield process, dict.fromkeys(EXTENDER, extender) | dict.fromkeys(WEBHOOKS, webhook)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def deep(rng: random.Random) -> bytes:
    """Brackets within brackets."""
    depth = rng.randrange(1, 3_000)
    return b'{"Pod":' * depth + b"[" * rng.randrange(100) + b"}" * rng.randrange(depth + 1)


def noise(rng: random.Random) -> bytes:
    """Any bytes."""
    return rng.randbytes(rng.randrange(2_000))


def mutated(rng: random.Random, wire: list[bytes]) -> bytes:
    """A real request with some bytes changed, cut out or doubled."""
    body = bytearray(rng.choice(wire))
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(body))
        match rng.randrange(3):
            case 0:
                body[at] = rng.randrange(256)
            case 1:
                del body[at : at + rng.randrange(1, 40)]
            case _:
                body[at:at] = body[at : at + rng.randrange(1, 40)]
        if not body:
            break
    return bytes(body)


def strange(rng: random.Random) -> bytes:
    """A review or a question whose strings are none that were seen before."""
    name = f"{rng.getrandbits(64):x}" * rng.randrange(1, 5)
    pod = {
        "metadata": {
            "name": name,
            "namespace": name,
            "uid": name,
            "labels": {name: name, "kueue.x-k8s.io/queue-name": name},
            "annotations": {
                "cohort-extender.io/admission": name,
                "cohort-extender.io/unit-admission": f'{{"job":"{name}"}}',
            },
        },
        "spec": {"nodeSelector": {name: name}, "containers": [{"resources": {"requests": {name: "1", "cpu": name}}}]},
    }
    request = {"uid": name, "operation": rng.choice(["CREATE", "UPDATE", name]), "namespace": name, "object": pod}
    question = {"Pod": pod, "NodeNames": [name] * rng.randrange(50), "NodeNameToMetaVictims": {name: {"Pods": None}}}
    return orjson.dumps(rng.choice([{**ENVELOPE, "request": {**request, "oldObject": pod}}, question]))


def huge(rng: random.Random) -> bytes:
    """At the limit of what is read, or beyond it."""
    size = rng.choice([1 << 20, 6 << 20, BODY_MAX["extender"] + 1])
    return rng.choice([b" " * size, b'{"NodeNames":["' + b"n" * size, b"[" * size])


def bodies(count: int) -> list[bytes]:
    """The first *count* inputs; always the same."""
    rng = random.Random(7)
    wire = [golden(path.name) for path in sorted(GOLDEN.glob("*.request.json"))]
    kinds = [lambda: noise(rng), lambda: deep(rng), lambda: mutated(rng, wire), lambda: strange(rng)]
    return [huge(rng) if number % HUGE_EVERY == HUGE_EVERY - 1 else rng.choice(kinds)() for number in range(count)]


async def send(ports: dict[str, int], inputs: list[bytes]) -> Counter[int]:
    """Every input to one path after the other; how often each status was answered."""
    statuses: Counter[int] = Counter()
    turn = iter(enumerate(inputs))
    paths = list(ports)
    limit = aiohttp.ClientTimeout(total=20)

    async def sender(session: aiohttp.ClientSession) -> None:
        for number, body in turn:
            path = paths[number % len(paths)]
            url = f"http://127.0.0.1:{ports[path]}{path}"
            try:
                async with session.post(url, data=io.BytesIO(body)) as answer:
                    await answer.read()
                    statuses[answer.status] += 1
            except aiohttp.ClientConnectionError:
                # Turned away by its length alone: the connection is closed on what is still being sent.
                assert len(body) > min(BODY_MAX.values())
                statuses[TOO_LARGE] += 1

    async with aiohttp.ClientSession(timeout=limit) as session:
        await asyncio.gather(*(sender(session) for _ in range(AT_ONCE)))
    return statuses


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("count", [3_000, pytest.param(100_000, marks=pytest.mark.slow)])
async def test_memory_is_bounded_whatever_is_sent(ports, count):
    process, listening = ports
    inputs = bodies(count)
    await send(listening, inputs[:WARM])
    before = rss_mb(process.pid)
    statuses = await send(listening, inputs)
    growth, peak = rss_mb(process.pid) - before, rss_mb(process.pid, peak=True) - before
    print(f"\n{count} inputs: {before:.0f} MB, then {growth:+.1f} MB, at most {peak:+.1f} MB; {dict(statuses)}")

    assert process.returncode is None
    assert sum(statuses.values()) == count
    assert set(statuses) <= {200, 400, TOO_LARGE}
    assert growth <= GROWTH_MB_MAX
    assert peak <= PEAK_MB_MAX
