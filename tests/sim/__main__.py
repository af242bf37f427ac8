"""Runs stories: ``python -m tests.sim --seeds 1000 --start 0``; ``--seed 7`` lives through one of them, told aloud."""

import argparse
import asyncio
import sys
import time
import traceback

from tests.sim.quiet import quiet
from tests.sim.story import STEPS, run


def main(argv: list[str]) -> int:
    """Run the stories that *argv* asks for; 1 if something did not hold in any of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many stories")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="live through this one only, and tell what happens")
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of each story")
    asked = parser.parse_args(argv)
    if asked.seed is not None:
        return 0 if _holds(asked.seed, asked.steps, aloud=True) else 1
    started = time.perf_counter()
    seeds = range(asked.start, asked.start + asked.seeds)
    failed = [seed for seed in seeds if not _holds(seed, asked.steps, aloud=False)]
    elapsed_s = time.perf_counter() - started
    print(f"{asked.seeds} seeds, {len(failed)} failed, {asked.seeds / elapsed_s:.1f} seeds/s")
    return 1 if failed else 0


def _holds(seed: int, steps: int, *, aloud: bool) -> bool:
    async def live() -> None:
        run(seed, steps=steps, tell=print if aloud else lambda _: None)

    try:
        with quiet():
            asyncio.run(live())
    except Exception as problem:
        if aloud:
            traceback.print_exc()
        print(f"seed {seed}: {type(problem).__name__}: {problem}")
        print(f"  replay: python -m tests.sim --seed {seed} --steps {steps}", flush=True)
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
