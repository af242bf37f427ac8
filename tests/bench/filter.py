"""What an answer to kube-scheduler costs: ``python -m tests.bench filter [--rounds N] [--json FILE]``.

The shipped server with its placement, 5,000 nodes known and one pod admitted, against a minimal Go server (built from
``go_extender``) that does the same JSON. Both in plain HTTP on one core, asked in turn within every round over one
connection that stays open, one request at a time, as kube-scheduler asks. CPU is the server process's, all threads.
"""

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import orjson
from rich.console import Console
from rich.table import Table

from tests.bench import _go
from tests.bench._cluster import filter_body, fits, node_names, preempt_body
from tests.bench._machine import Machine, cpu_s, quantile

SIZES = {100: 1.2, 1000: 0.8, 5000: 0.65}
"""Names in a request, and the goal of the ratio."""
P99_MS = {1000: 1.0, 5000: 3.0}
PREEMPT_MS = 5.0
NAMES_A_ROUND = 400_000
"""So that each size and round takes about as long."""
REQUESTS_MAX = 1_500


class Server(NamedTuple):
    """A running server and an open connection to it."""

    pid: int
    connection: socket.socket

    def ask(self, request: bytes) -> bytes:
        """Send, and read the whole reply; its body."""
        self.connection.sendall(request)
        received = self.connection.recv(1 << 20)
        head, _, body = received.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        assert lines[0].endswith(b" 200 ok"), received[:500]
        length = int(next(line for line in lines if line.startswith(b"content-length:")).split(b":")[1])
        parts, left = [body], length - len(body)
        while left > 0:
            parts.append(self.connection.recv(1 << 20))
            left -= len(parts[-1])
        return b"".join(parts)


class Cost(NamedTuple):
    """Of one batch: CPU µs of the server per request, and every request's time in ms."""

    cpu_us: float
    took_ms: list[float]


def request(verb: str, body: bytes) -> bytes:
    """The bytes of a call, with the header fields that Go's client sends."""
    head = (
        f"POST /scheduler/{verb} HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: Go-http-client/1.1\r\n"
        f"Content-Length: {len(body)}\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
    )
    return head.encode() + body


@contextlib.contextmanager
def running(argv: list[str], *, given: bytes = b"") -> Iterator[Server]:
    """A server that prints its port, on the first core; the client is on the others."""
    environment = {**os.environ, "GOMAXPROCS": "1"}
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})  # what is started now inherits it
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    os.sched_setaffinity(0, cores)
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(given)
            process.stdin.close()
            port = int(process.stdout.readline())
            with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                yield Server(process.pid, connection)
        finally:
            process.kill()


@contextlib.contextmanager
def off_the_first_core() -> Iterator[None]:
    """Leave the first core to the servers, where there are others."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores - {min(cores)} or cores)
    yield
    os.sched_setaffinity(0, cores)


def measure(server: Server, asked: bytes, count: int) -> Cost:
    """*count* times the same request."""
    took_ms = []
    began = cpu_s(server.pid)
    for _ in range(count):
        sent = time.perf_counter()
        server.ask(asked)
        took_ms.append((time.perf_counter() - sent) * 1e3)
    return Cost((cpu_s(server.pid) - began) / count * 1e6, took_ms)


def compare(ours: Server, theirs: Server, *, rounds: int) -> dict[str, dict[str, float]]:
    """Both servers in turn; the figures by number of names."""
    names = node_names()
    batches: dict[int, list[tuple[Cost, Cost]]] = {size: [] for size in SIZES}
    requests = {size: request("filter", filter_body(names[:size])) for size in SIZES}
    for asked in requests.values():
        assert orjson.loads(ours.ask(asked)) == orjson.loads(theirs.ask(asked)), "both give the same answer"
    for turn in range(rounds):
        for size, asked in requests.items():
            count = min(REQUESTS_MAX, NAMES_A_ROUND // size)
            pair = (ours, theirs) if turn % 2 == 0 else (theirs, ours)
            costs = [measure(server, asked, count) for server in pair]
            batches[size].append((costs[0], costs[1]) if turn % 2 == 0 else (costs[1], costs[0]))
    return {str(size): _figures(found) for size, found in batches.items()}


def _figures(found: list[tuple[Cost, Cost]]) -> dict[str, float]:
    took_ms = [ms for ours, _ in found for ms in ours.took_ms]
    return {
        "cpu_ratio_to_go": round(statistics.median(ours.cpu_us / go.cpu_us for ours, go in found), 3),
        "cpu_us": round(min(ours.cpu_us for ours, _ in found), 1),
        "go_cpu_us": round(min(go.cpu_us for _, go in found), 1),
        "p50_ms": round(quantile(took_ms, 0.5), 3),
        "p99_ms": round(quantile(took_ms, 0.99), 3),
        "p99_ms_best_round": round(min(quantile(ours.took_ms, 0.99) for ours, _ in found), 3),
        "go_p50_ms": round(quantile([ms for _, go in found for ms in go.took_ms], 0.5), 3),
        "go_p99_ms": round(quantile([ms for _, go in found for ms in go.took_ms], 0.99), 3),
    }


def measure_verb(server: Server, verb: str, body: bytes, *, count: int) -> dict[str, float]:
    """p50, p99 and CPU of a verb that only we answer."""
    cost = measure(server, request(verb, body), count)
    return {
        "cpu_us": round(cost.cpu_us, 1),
        "p50_ms": round(quantile(cost.took_ms, 0.5), 3),
        "p99_ms": round(quantile(cost.took_ms, 0.99), 3),
    }


def show(found: dict[str, dict[str, float]], others: dict[str, dict[str, float]], console: Console) -> None:
    """The tables."""
    table = Table("names", "CPU µs", "Go CPU µs", "ratio", "goal", "p50 ms", "p99 ms", "p99 ms goal", "Go p99 ms")
    for size, goal in SIZES.items():
        row = found[str(size)]
        cells = (row["cpu_us"], row["go_cpu_us"], row["cpu_ratio_to_go"], goal, row["p50_ms"], row["p99_ms"])
        table.add_row(f"{size:,}", *map(str, cells), str(P99_MS.get(size, "")), str(row["go_p99_ms"]))
    console.print(table)
    table = Table("call", "CPU µs", "p50 ms", "p99 ms")
    for name, row in others.items():
        table.add_row(name, str(row["cpu_us"]), str(row["p50_ms"]), str(row["p99_ms"]))
    console.print(table)


def main(argv: list[str]) -> int:
    """Measure, print, and write JSON if asked to."""
    options = argparse.ArgumentParser(prog="python -m tests.bench filter", description=__doc__)
    options.add_argument("--rounds", type=int, default=9)
    options.add_argument("--json", type=Path)
    asked = options.parse_args(argv)
    names = node_names()
    table = orjson.dumps({name: fits(number) for number, name in enumerate(names)})
    with tempfile.TemporaryDirectory() as directory:
        go = [str(_go.build(Path(directory)))]
        with (
            Machine() as machine,
            running([sys.executable, "-m", "tests.bench._our_extender"]) as ours,
            running(go, given=table) as theirs,
            off_the_first_core(),
        ):
            found = compare(ours, theirs, rounds=asked.rounds)
            preempt = measure_verb(ours, "preempt", preempt_body(names), count=300)
            scores = measure_verb(ours, "prioritize", filter_body(names[:1000]), count=300)
    console = Console()
    show(found, {"preempt, 100 nodes of 4 victims": preempt, "prioritize, 1,000 nodes": scores}, console)
    console.print("machine", machine.load)
    if asked.json:
        result = {
            **{key: {size: row[key] for size, row in found.items()} for key in found["100"]},
            "preempt_100_nodes_ms": preempt["p99_ms"],
            "preempt": preempt,
            "prioritize_1000_nodes": scores,
            "goals": {"cpu_ratio_to_go": SIZES, "p99_ms": P99_MS, "preempt_100_nodes_ms": PREEMPT_MS},
            "machine_load": machine.load,
        }
        asked.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0
