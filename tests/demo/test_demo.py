"""A play that is stopped in the middle leaves nothing behind."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.demo.__main__ import GOODBYE, STOPPED

pytestmark = [pytest.mark.rig]


def processes_of(folder: Path) -> list[str]:
    """The command lines of all processes that name *folder*."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it has ended meanwhile
        if str(folder) in command:
            found.append(command)
    return found


def names_in(folder: Path) -> list[str]:
    """What is left in *folder*."""
    return [path.name for path in folder.iterdir()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name)
async def test_who_stops_the_demo_finds_neither_files_nor_processes_of_it(
    tmp_path: Path, number: signal.Signals
) -> None:
    demo = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.demo"),
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(60):
        while not processes_of(tmp_path):
            assert demo.returncode is None
            await asyncio.sleep(0.02)
        demo.send_signal(number)
        told, _ = await demo.communicate()

    assert demo.returncode == STOPPED
    assert told.decode().splitlines()[-1] == GOODBYE
    assert "Traceback" not in told.decode()
    assert names_in(tmp_path) == []
    assert processes_of(tmp_path) == []
