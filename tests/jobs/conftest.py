"""One lab for the tests of a module; every test leaves it empty."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator

import pytest
import pytest_asyncio

from tests.conftest import RIGS
from tests.jobs.lab import Lab, opened


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def open_lab(request: pytest.FixtureRequest) -> AsyncIterator[Lab]:
    """A lab with the product installed; the module's ``OPENED`` dict holds its arguments."""
    async with opened(**getattr(request.module, "OPENED", {})) as lab:
        running = request.config.stash[RIGS]
        running.append(lab.rig)
        yield lab
        running.remove(lab.rig)


@pytest_asyncio.fixture(loop_scope="session")
async def lab(open_lab: Lab) -> AsyncIterator[Lab]:
    """The lab, empty."""
    yield open_lab
    if not open_lab.installation.service.running:
        await open_lab.installation.service.start()
    await open_lab.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put the end of the service's log under a failed test."""
    report = yield
    if report.failed and "lab" in getattr(item, "fixturenames", ()):
        for started in item.config.stash[RIGS]:
            for name, process in started.processes.items():
                if name.startswith("cohort-extender"):
                    report.sections.append((f"log of {name}", process.tail(60)))
    return report
