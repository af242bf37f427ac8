"""Build the control plane's binaries once, into a cache outside the repository.

etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kubectl are one binary with five links
(control_plane/main.go); KWOK is a binary of its own. The cache key holds the version and a hash of everything
the build reads, so a changed pin builds anew and an old checkout still finds its own. A build happens in a
directory beside the cache and is renamed when complete: an interrupted one leaves no half of a rig, and a
lock makes a second process wait instead of building the same twice.

KUBEBUILDER_ASSETS, when set, comes first: what lies there is used as it is. The published envtest set has
neither kube-controller-manager nor kube-scheduler nor KWOK, so these still come from the cache.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.rig.toolchain import ToolchainError, find_go, go_environment

HERE = Path(__file__).resolve().parent
MODULE = HERE / "control_plane"
LINKS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
COMPONENTS = (*LINKS, "kwok")
KWOK_PACKAGE = "sigs.k8s.io/kwok/cmd/kwok"
VERSION_VARIABLE = "k8s.io/component-base/version.gitVersion"
BUILD_S_MAX = 3600
HEARTBEAT_S = 15.0


class BuildError(RuntimeError):
    """A binary is missing and could not be built: says which, and why."""


@dataclass(frozen=True)
class Versions:
    """The pins of one rig, as versions.toml has them."""

    minor: str
    kubernetes: str
    kwok: str
    mod: Path
    kwok_mod: Path


@dataclass(frozen=True)
class Binaries:
    """Where each component's binary lies."""

    paths: dict[str, Path]
    versions: Versions

    def __getitem__(self, component: str) -> Path:
        return self.paths[component]


def known_minors() -> list[str]:
    """The Kubernetes minors that versions.toml pins."""
    return sorted(_pins()["kubernetes"])


def versions(minor: str | None = None) -> Versions:
    """The pins of *minor*: the argument, else RIG_KUBERNETES, else the default."""
    pins = _pins()
    minor = minor or os.environ.get("RIG_KUBERNETES") or pins["default"]
    if minor not in pins["kubernetes"]:
        known = ", ".join(known_minors())
        raise BuildError(f"Kubernetes {minor} is not in versions.toml (known: {known})")
    chosen = pins["kubernetes"][minor]
    default = pins["kubernetes"][pins["default"]]
    return Versions(
        minor=minor,
        kubernetes=chosen["version"],
        kwok=pins["kwok"],
        mod=MODULE / chosen["mod"],
        kwok_mod=MODULE / default["mod"],
    )


def binaries(minor: str | None = None) -> Binaries:
    """Every component's binary, building what is missing.

    Cost: milliseconds when built; some minutes the first time.
    Raises: BuildError, naming the missing components.
    """
    pins = versions(minor)
    assets = Path(os.environ["KUBEBUILDER_ASSETS"]) if os.environ.get("KUBEBUILDER_ASSETS") else None
    paths = {name: assets / name for name in COMPONENTS if assets and (assets / name).is_file()}
    missing = [name for name in COMPONENTS if name not in paths]
    try:
        if any(name in LINKS for name in missing):
            directory = _control_plane(pins)
            paths |= {name: directory / name for name in LINKS if name in missing}
        if "kwok" in missing:
            paths["kwok"] = _kwok(pins) / "kwok"
    except ToolchainError as error:
        where = f" (not in KUBEBUILDER_ASSETS={assets} either)" if assets else ""
        lacking = ", ".join(name for name in missing if name not in paths)
        raise BuildError(f"cannot build {lacking}{where}: {error}") from error
    return Binaries(paths=paths, versions=pins)


def cache_root() -> Path:
    """The directory that all built rigs share."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "cohort-extender" / "rig"


def _pins() -> dict[str, Any]:
    return tomllib.loads((HERE / "versions.toml").read_text())


def _control_plane(pins: Versions) -> Path:
    key = f"{pins.kubernetes}-{_digest(pins.mod, MODULE / 'main.go', extra=pins.kubernetes)}"
    with _building(key) as target:
        if target is not None:
            flags = f"-s -w -X {VERSION_VARIABLE}=v{pins.kubernetes}"
            title = f"Kubernetes {pins.kubernetes} control plane"
            _go_build(title, pins.mod, ".", target / "control-plane", ldflags=flags)
            for name in LINKS:
                (target / name).symlink_to("control-plane")
    return cache_root() / key


def _kwok(pins: Versions) -> Path:
    key = f"kwok-{pins.kwok}-{_digest(pins.kwok_mod, extra=pins.kwok)}"
    with _building(key) as target:
        if target is not None:
            title = f"KWOK {pins.kwok}"
            _go_build(title, pins.kwok_mod, KWOK_PACKAGE, target / "kwok", ldflags="-s -w")
    return cache_root() / key


def _digest(mod: Path, *sources: Path, extra: str) -> str:
    machine = f"{sys.platform}/{platform.machine()}"
    digest = hashlib.sha256(f"{machine} {extra}".encode())
    for source in (mod, mod.with_suffix(".sum"), *sources):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:12]


@contextlib.contextmanager
def _building(key: str) -> Iterator[Path | None]:
    """A directory to build *key* in, renamed into the cache on success; None when it is there already."""
    root = cache_root()
    if (root / key).is_dir():
        yield None
        return
    root.mkdir(parents=True, exist_ok=True)
    with (root / f"{key}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"rig: another process builds {key}; waiting for it", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        if (root / key).is_dir():
            yield None
            return
        partial = Path(tempfile.mkdtemp(prefix=f"{key}.partial-", dir=root))
        try:
            yield partial
            partial.rename(root / key)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def _go_build(title: str, mod: Path, package: str, output: Path, *, ldflags: str) -> None:
    go = find_go(mod)
    print(f"rig: building {title} with {go}; the first time takes some five minutes on two cores", flush=True)
    modfile = f"-modfile={mod}"
    listing = [str(go), "list", modfile, "-deps", package]
    packages = _go(f"{title}: modules", listing)
    building = [str(go), "build", modfile, "-v", "-trimpath", "-ldflags", ldflags]
    _go(title, [*building, "-o", str(output), package], total=len(packages))


def _go(title: str, argv: list[str], *, total: int = 0) -> list[str]:
    """Run go in the module with a heartbeat; the lines of its standard output.

    With -v, go prints every package it compiles on standard error: counting these is the progress.
    """
    started = time.monotonic()
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            argv, cwd=MODULE, env=go_environment(), text=True, stdout=subprocess.PIPE, stderr=errors
        ) as process,
    ):
        lines: list[str] = []
        assert process.stdout is not None
        reader = threading.Thread(target=lines.extend, args=(process.stdout,), daemon=True)
        reader.start()
        try:
            while _still_running(process):
                elapsed_s = time.monotonic() - started
                _report(title, elapsed_s, done=_count_lines(errors.fileno()), total=total)
                if elapsed_s > BUILD_S_MAX:
                    raise BuildError(f"{title}: not done after {BUILD_S_MAX} s")
        except BaseException:
            process.kill()
            raise
        reader.join(timeout=HEARTBEAT_S)
        if process.returncode:
            errors.seek(0)
            said = "".join(errors.readlines()[-20:])
            raise BuildError(f"{title}: go exited with {process.returncode}\n{said}")
    return lines


def _still_running(process: subprocess.Popen[str]) -> bool:
    try:
        process.wait(timeout=HEARTBEAT_S)
    except subprocess.TimeoutExpired:
        return True
    return False


def _count_lines(descriptor: int) -> int:
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, size, 0).count(b"\n")


def _report(title: str, elapsed_s: float, *, done: int, total: int) -> None:
    minutes, seconds = divmod(int(elapsed_s), 60)
    packages = f", {done} of at most {total} packages compiled" if total else ""
    print(f"rig: {title}: {minutes}m{seconds:02d}s{packages}", flush=True)
