"""One lab for the tests of a module; every test leaves it empty."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.conftest import RIGS
from tests.jobs.lab import Lab, opened


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def open_lab(request: pytest.FixtureRequest) -> AsyncIterator[Lab]:
    """A lab with the product installed; the module's ``LAB`` dict holds its arguments."""
    async with opened(**getattr(request.module, "LAB", {})) as lab:
        running = request.config.stash[RIGS]
        running.append(lab.rig)
        yield lab
        running.remove(lab.rig)


@pytest_asyncio.fixture(loop_scope="session")
async def lab(open_lab: Lab) -> AsyncIterator[Lab]:
    """The lab, empty."""
    yield open_lab
    await open_lab.clear()
