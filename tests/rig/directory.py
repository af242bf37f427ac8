"""The directory of one rig, swept by a later one when its owner could not.

The owner holds a lock on a file inside; the kernel drops the lock when the owner dies, however it dies. The
next rig to start removes every directory whose lock is free.
"""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import tempfile
import time
from pathlib import Path
from typing import IO

PREFIX = "cohort-rig-"
OWNER = "owner"
YOUNG_S = 60.0  # a directory just made may not be locked yet


class RigDirectory:
    """A locked temporary directory."""

    def __init__(self) -> None:
        _sweep(Path(tempfile.gettempdir()))
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._lock: IO[str] = (self.path / OWNER).open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def close(self, *, keep: bool = False) -> None:
        """Remove it, or give it up to the reader (a kept one is never swept)."""
        if keep:
            (self.path / OWNER).unlink(missing_ok=True)
        else:
            shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def _sweep(parent: Path) -> None:
    for directory in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if time.time() - directory.stat().st_mtime < YOUNG_S:
                continue
            with (directory / OWNER).open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory, ignore_errors=True)
