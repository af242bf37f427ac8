"""One supervised process: start, wait until ready, log, kill, pause, restart.

Plain subprocess.Popen, polled: a process outlives no event loop and belongs to none, so a rig made in one
loop can be stopped from another. Every process goes through guard.py and dies with the Python that started
it. It gets a session of its own: Ctrl-C in a terminal reaches the rig alone, which stops its parts in order.

Start processes from the main thread: the kernel's parent-death signal follows the thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

GUARD = Path(__file__).with_name("guard.py")
POLL_S = 0.02
REAP_S_MAX = 10.0
PROBE_S_MAX = 2.0
TAIL_BYTES_MAX = 64 * 1024

Probe = Callable[[], Awaitable[bool]]


class ProcessError(RuntimeError):
    """A process ended, or was not ready in time; the message ends with the tail of its log."""


@dataclass
class Process:
    """A named program, its log file, and how to tell that it is ready."""

    name: str
    argv: Sequence[str]
    log: Path
    env: Mapping[str, str] | None = None
    cwd: Path | None = None
    ready: Probe | None = None
    ready_s_max: float = 60.0
    _child: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def running(self) -> bool:
        """Whether it is alive, paused or not."""
        return self._child is not None and self._child.poll() is None

    @property
    def pid(self) -> int:
        """Its process id.

        Raises: ProcessError, when it is not running.
        """
        if self._child is None or not self.running:
            raise ProcessError(f"{self.name} is not running")
        return self._child.pid

    @property
    def returncode(self) -> int | None:
        """The exit status of the last run; None while it runs, negative after a signal."""
        return self._child.poll() if self._child is not None else None

    async def start(self, *, wait: bool = True) -> None:
        """Start it and, unless told otherwise, wait until it is ready."""
        assert not self.running, f"{self.name} is running already"
        guard = [sys.executable, "-I", "-S", str(GUARD), str(os.getpid())]
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(  # noqa: ASYNC220, belongs to no loop: see above
                [*guard, *self.argv],
                env=self.env,
                cwd=self.cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        if wait:
            await self.wait_ready()

    async def wait_ready(self, timeout_s: float | None = None) -> None:
        """Wait until the probe answers yes.

        Raises: ProcessError, when the process ends first or time is up.
        """
        timeout_s = self.ready_s_max if timeout_s is None else timeout_s
        deadline_s = time.monotonic() + timeout_s
        while True:
            if not self.running:
                raise ProcessError(f"{self.name} ended with {self.returncode}\n{self.tail()}")
            if self.ready is None or await self.ready():
                return
            if time.monotonic() > deadline_s:
                raise ProcessError(f"{self.name} not ready after {timeout_s:g} s\n{self.tail()}")
            await asyncio.sleep(POLL_S)

    async def wait(self, timeout_s: float = 30.0) -> int:
        """Wait until it ends; its exit status.

        Raises: ProcessError, when it still runs at the deadline.
        """
        deadline_s = time.monotonic() + timeout_s
        while self.running:
            if time.monotonic() > deadline_s:
                raise ProcessError(f"{self.name} still runs after {timeout_s:g} s\n{self.tail()}")
            await asyncio.sleep(POLL_S)
        if self.returncode is None:
            raise ProcessError(f"{self.name} was never started")
        return self.returncode

    async def kill(self) -> None:
        """SIGKILL to it and all its children: no farewell, as in a crash."""
        self.kill_now()
        if self._child is not None:
            await self.wait(REAP_S_MAX)

    def kill_now(self) -> None:
        """`kill` without waiting for the end, for shutting many down at once."""
        self._signal(signal.SIGKILL)

    async def terminate(self, grace_s: float = 10.0) -> int | None:
        """SIGTERM, then SIGKILL when it has not ended after *grace_s*; the exit status."""
        self._signal(signal.SIGTERM)
        with contextlib.suppress(ProcessError):
            return await self.wait(grace_s)
        await self.kill()
        return self.returncode

    async def restart(self) -> None:
        """Kill and start again with the same arguments, and so the same ports and data."""
        await self.kill()
        await self.start()

    def pause(self) -> None:
        """SIGSTOP: alive, its sockets open, but it does nothing (a stalled node, a long pause)."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT: undo `pause`."""
        self._signal(signal.SIGCONT)

    def text(self) -> str:
        """All of its log, over all its runs."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def tail(self, lines: int = 20) -> str:
        """The last *lines* of its log, under a heading with its name."""
        if not self.log.exists():
            return f"--- {self.name}: no log"
        with self.log.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - TAIL_BYTES_MAX))
            last = log.read().decode(errors="replace").splitlines()[-lines:]
        return "\n".join([f"--- {self.name}, last lines of its log", *last])

    def memory(self) -> int:
        """Bytes of memory it holds now (resident set)."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024

    def _signal(self, number: signal.Signals) -> None:
        if self._child is not None and self._child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, number)


def answers(url: str) -> Probe:
    """A probe that is true when *url* answers 200; no certificate is checked."""

    async def answers_now() -> bool:
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            timeout = aiohttp.ClientTimeout(total=PROBE_S_MAX)
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(url, ssl=False) as answer,
            ):
                return answer.status == 200
        return False

    return answers_now
