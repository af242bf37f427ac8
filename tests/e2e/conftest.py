"""One installed hospital for the tests of a module; every test leaves it empty."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.conftest import RIGS
from tests.e2e.installation import Installation, installed
from tests.e2e.story import Story


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def hospital(request: pytest.FixtureRequest) -> AsyncIterator[Installation]:
    """The product on a control plane with the hospital's nodes and queues; ``REPLICAS`` of the module run."""
    async with installed(replicas=getattr(request.module, "REPLICAS", 1)) as installation:
        running = request.config.stash[RIGS]
        running.append(installation.rig)
        yield installation
        running.remove(installation.rig)


@pytest_asyncio.fixture(loop_scope="session")
async def story(hospital: Installation) -> AsyncIterator[Story]:
    """The steps of the story, in an empty hospital."""
    told = Story(hospital)
    yield told
    await told.clear()
