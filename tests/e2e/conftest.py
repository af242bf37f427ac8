"""One installed hospital for the tests of a module; every test leaves it empty."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.conftest import RIGS
from tests.e2e.installation import POOLS, Installation, installed
from tests.e2e.story import Story


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def hospital(request: pytest.FixtureRequest) -> AsyncIterator[Installation]:
    """The product on a control plane with the hospital's nodes and queues.

    A module may say how many ``REPLICAS`` run, with which ``SETTINGS`` over the shipped ones, on which ``POOLS``, and
    which options the ``RIG`` gets.
    """
    module = request.module
    async with installed(
        replicas=getattr(module, "REPLICAS", 1),
        pools=getattr(module, "POOLS", POOLS),
        settings=getattr(module, "SETTINGS", None),
        rig_options=getattr(module, "RIG", None),
    ) as installation:
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
