"""Plays steps 1 to 4 of the hospital story on a real control plane, and tells what happens and why.

Ends by itself when its output is not a terminal; on one it leaves everything running until Ctrl-C, so that people can
look around with kubectl. Ctrl-C and SIGTERM end it at any time, and what it started and wrote with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.panel import Panel

from extender.cli.tree import bar_width, build, draw
from tests.e2e.installation import POOLS, Installation
from tests.e2e.story import CLINICAL, GPUS, RESEARCH, Story, is_running, is_waiting, names
from tests.rig import Rig

QUOTA = "/apis/kueue.x-k8s.io/v1beta2"
FILE_WIDTH = 140
GOODBYE = "The cluster and its files are gone. `make demo` plays it again."
STOPPED = 130
"""The exit code of a play that was stopped before its end, as shells have it for Ctrl-C."""
T = TypeVar("T")
Step = tuple[str, str, bool]


class Teller:
    """Prints the story."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.steps: list[Step] = []
        self._began = time.monotonic()

    def say(self, words: str, style: str = "") -> None:
        """One line, with the time since the start."""
        self.console.print(f"[dim]{time.monotonic() - self._began:6.1f} s[/dim]  {words}", style=style)

    def chapter(self, title: str, words: str) -> None:
        """A new step begins."""
        self.console.print()
        self.console.print(Panel(words, title=title, title_align="left", border_style="blue"))

    async def while_watching(self, story: Story, work: Awaitable[T]) -> T:
        """Tell how many pods run and wait while *work* goes on."""
        task = asyncio.ensure_future(work)
        last = ""
        while not task.done():
            line = await _counts(story)
            if line != last:
                self.say(line, style="dim")
                last = line
            await asyncio.wait([task], timeout=1.0)
        return await task

    def conclude(self, step: str, words: str, *, good: bool) -> None:
        """A step's result, kept for the summary."""
        self.steps.append((step, words, good))
        self.say(words, style="bold green" if good else "bold red")

    async def picture(self, story: Story) -> None:
        """The quota tree as it stands."""
        cohorts = await story.api.list(f"{QUOTA}/cohorts")
        cluster_queues = await story.api.list(f"{QUOTA}/clusterqueues")
        self.console.print(draw(build(cohorts, cluster_queues), width=bar_width(self.console.width)))

    def invite(self, rig: Rig) -> None:
        """How to look around: lines to paste, whole whatever the width of the terminal."""
        folders = [Path(sys.executable).parent, rig.binary("kubectl").parent]
        self.say("the cluster stays until Ctrl-C; to look around, paste this into another terminal:")
        self.console.print()
        self.console.print(f"export KUBECONFIG={rig.kubeconfig()}", soft_wrap=True)
        self.console.print(f"export PATH={':'.join(map(str, folders))}:$PATH", soft_wrap=True)

    def summary(self) -> bool:
        """One line a step; whether all went as told."""
        self.console.print()
        for step, words, good in self.steps:
            verdict = "[green]as told[/green]" if good else "[red]NOT AS TOLD[/red]"
            self.console.print(f"step {step}: {verdict}: {words}")
        return all(good for _, _, good in self.steps)


async def _counts(story: Story) -> str:
    words = []
    for namespace in (CLINICAL, RESEARCH):
        pods = await story.pods(namespace)
        words.append(f"{namespace}: {sum(map(is_running, pods)):3} run, {sum(map(is_waiting, pods)):3} wait")
    return "   ".join(words)


async def night(teller: Teller, story: Story) -> None:
    """Step 1."""
    teller.chapter("1  Night", "Research submits a Job of 100 one-GPU pods. Its queue owns nothing: all is borrowed.")
    await teller.while_watching(story, story.night())
    used = await story.gpus_in_use()
    await teller.picture(story)
    teller.conclude("1 night", f"{used} of {GPUS} GPUs in use, all borrowed by research", good=used == GPUS)


async def clinical(teller: Teller, story: Story) -> None:
    """Step 2."""
    teller.chapter("2  A patient", "The clinical service starts a pod of the highest priority. Every GPU is taken.")
    arrival = await story.clinical_arrives()
    teller.say(f"evicted: {', '.join(arrival.evicted)}")
    teller.say(f"its replacement {arrival.waiting} waits: [yellow]{arrival.reason}[/yellow]: {arrival.message}")
    words = (
        f"{len(arrival.evicted)} training pod evicted; clinical pod Running {arrival.seconds:.2f} s after kubectl apply"
    )
    teller.conclude("2 clinical pod", words, good=len(arrival.evicted) == 1)


async def contention(teller: Teller, story: Story) -> None:
    """Step 3."""
    teller.chapter("3  Contention", "80 clinical and 100 training pods want 100 GPUs. The weights are 0.6 and 0.4.")
    counts = await teller.while_watching(story, story.contention())
    before = names(await story.pods(RESEARCH))
    await asyncio.sleep(5)
    quiet = names(await story.pods(RESEARCH)) == before
    await teller.picture(story)
    words = (
        f"clinical {counts[0]} : research {counts[1]}, {'and no more evictions' if quiet else 'but it goes on moving'}"
    )
    teller.conclude("3 contention", words, good=abs(counts[0] - 60) <= 1 and sum(counts) == GPUS and quiet)


async def lines(teller: Teller, story: Story) -> None:
    """Step 4."""
    teller.chapter("4  Two waiting rooms", "A big case waits for room. May a small one behind it be seen to first?")
    strict = await story.line_up("outpatient")
    teller.say(f"outpatient (StrictFIFO): the small one {'runs' if strict['small'] else 'waits behind the big one'}")
    best = await story.line_up("emergency")
    teller.say(f"emergency (BestEffortFIFO): the small one {'passes the big one' if best['small'] else 'waits'}")
    words = "StrictFIFO keeps the small job behind the big one, BestEffortFIFO lets it pass"
    good = not strict["small"] and best["small"] and not strict["big"] and not best["big"]
    teller.conclude("4 waiting rooms", words, good=good)


STEPS: tuple[Callable[[Teller, Story], Awaitable[None]], ...] = (night, clinical, contention, lines)


async def play(console: Console) -> bool:
    """The whole story; whether every step went as told. Raises: CancelledError, when it is stopped before its end."""
    _stop_on_signals(console)
    teller = Teller(console)
    teller.say("starting etcd, kube-apiserver, kube-controller-manager, kube-scheduler and simulated nodes")
    async with Rig(nodes=POOLS, scheduler=False) as rig:
        installation = Installation(rig)
        teller.say("installing manifests/default and starting cohort-extender as its service account")
        await installation.install()
        await installation.hospital()
        story = Story(installation)
        for step in STEPS:
            await step(teller, story)
        good = teller.summary()
        if console.is_terminal:
            teller.invite(rig)
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
    if console.is_terminal:
        console.print(GOODBYE)
    return good


def _stop_on_signals(console: Console) -> None:
    """Cancel the play at the first signal, in order: the rig stops its processes and removes its files.

    Later signals change nothing, so that an impatient second Ctrl-C leaves nothing behind.
    """
    loop, play_task = asyncio.get_running_loop(), asyncio.current_task()
    stopping = False

    def stop() -> None:
        nonlocal stopping
        if not stopping and play_task is not None:
            stopping = True
            console.print("\nstopping the cluster …")
            play_task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop)


def main() -> int:
    """The demo's exit code."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=FILE_WIDTH)
    try:
        return 0 if asyncio.run(play(console)) else 1
    except asyncio.CancelledError:
        console.print(GOODBYE)
        return STOPPED


if __name__ == "__main__":
    sys.exit(main())
