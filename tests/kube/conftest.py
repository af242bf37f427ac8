from collections.abc import AsyncIterator

import pytest

from extender.kube.client import ApiClient
from extender.kube.config import ClusterConfig
from tests.kube.desk import PODS, desk_of
from tests.kube.office import Store
from tests.kube.watching import Seen
from tests.support.clock import FakeClock
from tests.support.fake_api import FakeApi
from tests.support.objects import pod_json


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi.running() as running:
        yield running


@pytest.fixture
async def client(api: FakeApi) -> AsyncIterator[ApiClient]:
    made = ApiClient(ClusterConfig(server=api.url), timeout_s=2.0)
    yield made
    await made.close()


@pytest.fixture
async def desk(client):
    async with desk_of(client) as made:
        yield made


@pytest.fixture
def pod(api):
    return api.put(PODS, pod_json("p"))


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def seen():
    return Seen()
