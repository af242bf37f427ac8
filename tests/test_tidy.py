"""House rules that a tool can check: sizes, links, dependencies with their reason, nothing of any one machine."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINES_MAX = 400
ADR_LINES_MAX = 60
FILE_BYTES_MAX = 1 << 20
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
REGISTRIES = tuple(
    ".".join(parts)
    for parts in (
        ("pythonhosted", "org"),
        ("pypi", "org"),
        ("proxy", "golang"),
        ("sum", "golang"),
        ("registry", "npmjs"),
    )
)


def tracked(*patterns: str) -> list[Path]:
    """The files of the repository, as git knows them; an export without git is walked."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z", *patterns], cwd=ROOT, capture_output=True, check=True, text=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return [path for pattern in patterns or ("**/*",) for path in ROOT.glob(pattern) if path.is_file()]
    return [path for name in listed.split("\0") if name and ((path := ROOT / name).is_file() or path.is_symlink())]


@pytest.mark.parametrize(
    "path", tracked("extender/**/*.py", "extender/*.py", "tests/**/*.py"), ids=lambda path: str(path.relative_to(ROOT))
)
def test_a_module_is_one_room(path: Path):
    assert len(path.read_text().splitlines()) <= LINES_MAX


def test_no_registry_and_no_path_of_a_machine_is_named():
    machine = re.compile(r"(?<![a-z.])/(?:work|farm)/")
    here = Path(__file__)
    found = []
    for path in tracked():
        text = path.read_bytes().decode(errors="ignore")
        if path != here and (any(host in text for host in REGISTRIES) or machine.search(text)):
            found.append(path.name)

    assert found == []


def test_no_link_is_tracked():
    """Checked out, a link to an environment takes the place of the environment itself."""
    assert [path.name for path in tracked() if path.is_symlink()] == []


def test_no_file_is_large():
    assert [path.name for path in tracked() if path.stat().st_size > FILE_BYTES_MAX] == []


def test_every_link_of_a_page_leads_somewhere():
    pages = [*tracked("*.md", "docs/*.md", "docs/**/*.md", "manifests/**/*.md", "certs/*.md")]
    dead = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in LINK.findall(page.read_text())
        if not (page.parent / target).exists()
    ]

    assert pages
    assert dead == []


def test_every_runtime_dependency_has_its_reason():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {re.split(r"[<>=~!\[ ]", line)[0] for line in project["dependencies"]}
    rows = (ROOT / "docs" / "dependencies.md").read_text()

    assert [name for name in sorted(names) if f"| {name} |" not in rows] == []


def test_decisions_have_numbers_of_their_own_and_fit_a_page():
    decisions = sorted((ROOT / "docs" / "adr").glob("*.md"))
    numbers = [path.name[:4] for path in decisions]

    assert len(numbers) == len(set(numbers))
    assert [path.name for path in decisions if len(path.read_text().splitlines()) > ADR_LINES_MAX] == []
    assert [path.name for path in decisions if not path.read_text().startswith(f"# {path.name[:4]} ")] == []
