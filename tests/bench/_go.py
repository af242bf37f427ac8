"""Builds the Go yardstick of the filter benchmark."""

import subprocess
from pathlib import Path

from tests.rig.toolchain import find_go, go_environment

MODULE = Path(__file__).with_name("go_extender")
BUILD_S_MAX = 300.0


def build(directory: Path) -> Path:
    """The binary of the minimal Go extender, built into *directory*.

    Raises: subprocess.CalledProcessError, with what go said; ToolchainError, without a usable Go.
    """
    binary = directory / "go-extender"
    go = find_go(MODULE / "go.mod")
    argv = [str(go), "build", "-trimpath", "-ldflags", "-s -w", "-o", str(binary), "."]
    subprocess.run(argv, cwd=MODULE, env=go_environment(), check=True, timeout=BUILD_S_MAX)
    return binary
