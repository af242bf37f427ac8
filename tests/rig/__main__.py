"""The rig as a command: `python -m tests.rig up`, `build`, `which <component>`."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time

from tests.rig.build import COMPONENTS, BuildError, binaries
from tests.rig.nodes import NodePool
from tests.rig.rig import Rig

GPU = "nvidia.com/gpu"


def main() -> int:
    """Read the command line and do it; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.rig", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start a cluster and stay until Ctrl-C")
    up.add_argument("--nodes", type=int, default=4, metavar="N", help="simulated nodes (default 4)")
    up.add_argument("--gpus", type=int, default=8, metavar="N", help="GPUs per node (default 8)")
    commands.add_parser("build", help="build what is missing")
    which = commands.add_parser("which", help="print where a component's binary is")
    which.add_argument("component", choices=COMPONENTS)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: half a build is removed
    try:
        if arguments.command == "up":
            asyncio.run(_up(arguments.nodes, arguments.gpus))
        elif arguments.command == "build":
            built = binaries()
            print(f"rig: Kubernetes {built.versions.kubernetes} in {built['kube-apiserver'].parent}")
        else:
            print(binaries()[arguments.component])
    except BuildError as error:
        print(f"rig: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nrig: stopped; what Go has compiled so far is not compiled again", file=sys.stderr)
        return 130
    return 0


async def _up(nodes: int, gpus: int) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    print("rig: starting", flush=True)
    started = time.monotonic()
    pools = [NodePool("node", nodes, capacity={GPU: gpus})] if nodes else []
    async with Rig(nodes=pools) as rig:
        print(f"rig: ready after {time.monotonic() - started:.1f} s; Ctrl-C ends it", flush=True)
        print(f"export KUBECONFIG={rig.kubeconfig()}", flush=True)
        print(f"alias kubectl={rig.binary('kubectl')}", flush=True)
        await stop.wait()
        print("rig: stopping", flush=True)


if __name__ == "__main__":
    sys.exit(main())
