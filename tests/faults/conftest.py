"""One lab for all tests; each begins with it whole and empty, under the auditor's eyes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Generator

import pytest
import pytest_asyncio

from tests.conftest import RIGS
from tests.faults.auditor import Auditor
from tests.faults.lab import Lab, lab


@pytest_asyncio.fixture(loop_scope="session", scope="package")
async def installed(request: pytest.FixtureRequest) -> AsyncIterator[Lab]:
    """Two replicas on a control plane, for all tests of faults."""
    async with lab() as made:
        running = request.config.stash[RIGS]
        running.append(made.rig)
        yield made
        running.remove(made.rig)


@pytest_asyncio.fixture(loop_scope="session")
async def faulty(installed: Lab) -> Lab:
    """The lab, whole and empty."""
    await installed.whole()
    await installed.empty()
    return installed


@pytest_asyncio.fixture(loop_scope="session")
async def auditor(faulty: Lab) -> AsyncIterator[Auditor]:
    """Watches during the test; what it found is asserted at the end."""
    watching = Auditor(faulty)
    task = asyncio.create_task(watching.run())
    yield watching
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put what the replicas said last under a failed test."""
    report = yield
    if report.failed and "installed" in getattr(item, "fixturenames", ()):
        for rig in item.config.stash[RIGS]:
            for name, process in rig.processes.items():
                if name.startswith(("cohort-extender", "kube-scheduler", "kwok")):
                    report.sections.append((f"log of {name}", process.tail(40)))
    return report
