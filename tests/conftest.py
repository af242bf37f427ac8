"""What all tests share: the `rig` fixture, and long tests only on request."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from typing import Any

import pytest
import pytest_asyncio

from tests.rig import Rig

RIG_TIMEOUT_S = 120
RIGS = pytest.StashKey[list[Rig]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --slow."""
    parser.addoption("--slow", action="store_true", help="run long simulations and soaks as well")


def pytest_configure(config: pytest.Config) -> None:
    """Keep a list of the rigs that run, for reports."""
    config.stash[RIGS] = []


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip slow tests unless asked for; let all tests of a rig share its event loop and a time limit."""
    for item in items:
        if item.get_closest_marker("slow") and not config.getoption("--slow"):
            item.add_marker(pytest.mark.skip(reason="slow: only with --slow"))
        if item.get_closest_marker("rig"):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(RIG_TIMEOUT_S))


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def rig(request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    """A control plane for the tests of one module; the module's `RIG` dict holds its arguments."""
    arguments: dict[str, Any] = getattr(request.module, "RIG", {})
    async with Rig(**arguments) as started:
        running = request.config.stash[RIGS]
        running.append(started)
        yield started
        running.remove(started)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put the end of every component's log under a failed test."""
    report = yield
    if report.failed and "rig" in getattr(item, "fixturenames", ()):
        for started in item.config.stash[RIGS]:
            for process in started.processes.values():
                report.sections.append((f"log of {process.name}", process.tail()))
    return report
