"""The image's steps, run as the Dockerfile runs them, and the locks they install from."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CI = ROOT / ".ci"
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def pins(path: Path) -> dict[str, str]:
    """Names and versions in a lock file."""
    return dict(re.findall(r"^([\w.-]+)==(\S+)", path.read_text(), re.MULTILINE))


@pytest.mark.parametrize("name", ["runtime.lock", "build.lock"])
def test_a_lock_pins_what_the_tests_run_with_and_names_no_address(name):
    text = (CI / name).read_text()

    assert pins(CI / name).items() <= pins(ROOT / "requirements.lock").items()
    assert "://" not in text
    for pinned in re.split(r"^(?=[\w.-]+==)", text, flags=re.MULTILINE)[1:]:
        assert "--hash=sha256:" in pinned


def test_the_image_has_every_dependency_of_the_project_and_no_tool():
    wanted = re.search(r"^dependencies = \[(.*?)^\]", (ROOT / "pyproject.toml").read_text(), re.MULTILINE | re.DOTALL)
    assert wanted is not None
    names = set(re.findall(r'"([\w-]+)', wanted[1]))
    pinned = pins(CI / "runtime.lock")

    assert names <= set(pinned)
    assert not {"pytest", "mypy", "ruff", "uv", "hatchling"} & set(pinned)


def test_the_image_runs_as_nobody_and_copies_what_the_steps_need():
    assert re.search(r"^USER 65532:65532$", DOCKERFILE, re.MULTILINE)
    assert "RUN .ci/image-steps /app" in DOCKERFILE
    copied = " ".join(re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE))
    for needed in (".ci/image-steps", ".ci/build.lock", ".ci/runtime.lock", "pyproject.toml", "README.md", "extender"):
        assert needed in copied
        assert f"!{needed}" in (ROOT / ".dockerignore").read_text()


@pytest.mark.timeout(600)
def test_the_steps_make_an_environment_that_runs_the_service(tmp_path):
    app = tmp_path / "app"
    before = _leftovers()

    subprocess.run([CI / "image-steps", app, sys.executable], check=True, cwd=tmp_path)
    version = subprocess.run(
        [app / "bin" / "cohort-extender", "version"],
        check=True,
        capture_output=True,
        text=True,
        cwd="/",
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
    )
    installed = {path.name for path in app.glob("lib/*/site-packages/*")}

    assert version.stdout.strip()
    assert "extender" in installed
    assert not {"pip", "pytest", "hatchling"} & installed
    assert _leftovers() == before


def _leftovers() -> list[bool]:
    return [(ROOT / name).exists() for name in ("build", "dist", "cohort_extender.egg-info")]
