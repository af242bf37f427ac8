"""Run kubectl for a test: bounded in time, with an environment that knows only the rig."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path


class KubectlError(RuntimeError):
    """kubectl exited with an error: the message is what it said."""


async def kubectl(
    binary: Path,
    arguments: Sequence[str | Path],
    *,
    env: Mapping[str, str],
    given: str | bytes | None,
    timeout_s: float,
) -> str:
    """What kubectl printed; *given* is its standard input.

    Raises: KubectlError, TimeoutError.
    """
    process = await asyncio.create_subprocess_exec(
        str(binary),
        *map(str, arguments),
        env=env,
        stdin=asyncio.subprocess.DEVNULL if given is None else asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(timeout_s):
            encoded = given.encode() if isinstance(given, str) else given
            printed, complaint = await process.communicate(encoded)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        command = " ".join(map(str, arguments))
        raise KubectlError(f"kubectl {command}: {complaint.decode(errors='replace').strip()}")
    return printed.decode()
