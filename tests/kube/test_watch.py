"""The whole way from a server's bytes to facts, and each fault on it."""

import asyncio

import orjson
import pytest

from extender.kube.client import ApiClient
from extender.kube.config import ClusterConfig
from extender.kube.resources import everything, kueue_version, namespaces, pods, quota
from extender.kube.watch import Watcher
from extender.model.events import NamespaceSeen
from tests.kube.watching import PODS, watching
from tests.support.clock import FakeClock
from tests.support.fake_api import Fault, until
from tests.support.objects import pod_json


async def test_what_is_there_and_what_comes(api, client, seen):
    for index in range(5):
        api.put(PODS, pod_json(f"p{index}"))

    async with watching(client, seen, page_items=2) as watcher:
        await watcher.synced.wait()
        listed = seen.names
        await until(lambda: api.watching(PODS) == 1)
        api.put(PODS, pod_json("p5"))
        api.remove(PODS, "research/p0")
        await until(lambda: seen.names == ["p1", "p2", "p3", "p4", "p5"])

    assert listed == ["p0", "p1", "p2", "p3", "p4"]
    watch = next(request for request in api.requests if "watch" in request.query)
    assert watch.query["resourceVersion"] == "105"
    assert watch.query["allowWatchBookmarks"] == "true"
    assert watch.query["timeoutSeconds"] == "450"
    assert seen.problems == []


async def test_what_changed_between_list_and_watch_is_seen(api, client, seen):
    api.put(PODS, pod_json("p0"))

    async with watching(client, seen) as watcher:
        await watcher.synced.wait()
        api.put(PODS, pod_json("p1"))
        await until(lambda: seen.names == ["p0", "p1"])


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault(chunks=[], hang=True), id="half-open: accepted, then not a byte"),
        pytest.param(Fault(hang=True), id="half-open: not even accepted"),
        pytest.param(Fault(chunks=[b'{"type":"ADDED","obj'], cut=True), id="cut within a line"),
        pytest.param(Fault(chunks=[b"<html>502</html>\n"]), id="not a watch at all"),
        pytest.param(Fault(chunks=[]), id="ended at once"),
        pytest.param(Fault(cut=True), id="the connection breaks"),
        pytest.param(Fault(status=410, message="too old"), id="the version is too old"),
        pytest.param(Fault(status=429, headers={"Retry-After": "1"}), id="too many requests"),
        pytest.param(Fault(status=503), id="the API server starts"),
        pytest.param(Fault(status=500), id="the API server is unwell"),
        pytest.param(Fault(status=403), id="forbidden"),
        pytest.param(
            Fault(chunks=[b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}\n']),
            id="too old, said by an event",
        ),
        pytest.param(
            Fault(chunks=[b'{"type":"ERROR","object":{"kind":"Status","status":"Failure","code":500}}\n']),
            id="an error event",
        ),
    ],
)
async def test_after_any_fault_of_a_watch_all_is_seen(api, seen, fault, monkeypatch):
    monkeypatch.setattr("extender.kube.client.OPEN_TIMEOUT_S", 0.1)
    client = ApiClient(ClusterConfig(server=api.url))
    api.put(PODS, pod_json("p0"))
    api.fail("WATCH", "/pods", fault, times=2)

    async with watching(client, seen, silence_s=0.1) as watcher:
        await watcher.synced.wait()
        api.put(PODS, pod_json("p1"))
        api.remove(PODS, "research/p0")
        await until(lambda: seen.names == ["p1"])
        await until(lambda: api.count("WATCH", "/pods") >= 3)
        api.put(PODS, pod_json("p2"))
        await until(lambda: seen.names == ["p1", "p2"])

    await client.close()


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault(hang=True), id="no answer"),
        pytest.param(Fault(cut=True), id="the connection breaks"),
        pytest.param(Fault(status=429, headers={"Retry-After": "1"}), id="too many requests"),
        pytest.param(Fault(status=500), id="the API server is unwell"),
        pytest.param(Fault(status=410), id="expired"),
        pytest.param(Fault(chunks=[b"<html>"]), id="not a list"),
        pytest.param(Fault(chunks=[b'{"items":null}']), id="items: null"),
    ],
)
async def test_after_any_fault_of_a_list_all_is_seen(api, client, seen, fault, monkeypatch):
    monkeypatch.setattr("extender.kube.client.LIST_TIMEOUT_S", 0.1)
    api.put(PODS, pod_json("p0"))
    api.fail("LIST", "/pods", fault, times=1)

    async with watching(client, seen):
        await until(lambda: seen.names == ["p0"] or api.watching(PODS) == 1)
        if not fault.chunks or b"items" not in fault.chunks[0]:
            await until(lambda: seen.names == ["p0"])


async def test_a_long_absence_is_made_good_by_a_list(api, client, seen):
    api.put(PODS, pod_json("p0"))
    api.put(PODS, pod_json("p1"))

    async with watching(client, seen) as watcher:
        await until(lambda: api.watching(PODS) == 1)
        api.fail("WATCH", "/pods", Fault(status=410))
        api.end_watches()
        api.remove(PODS, "research/p0")
        fresh = pod_json("p1", uid="another")
        api.put(PODS, fresh)
        api.put(PODS, pod_json("p2"))
        await until(lambda: seen.pods == {"another": "p1", "uid-p2": "p2"})

    assert watcher.counters.lists <= 2


async def test_a_line_within_a_chunk_of_many_is_read(api, client, seen):
    async with watching(client, seen):
        await until(lambda: api.watching(PODS) == 1)
        lines = [orjson.dumps({"type": "ADDED", "object": pod_json(f"p{i}", version=f"{200 + i}")}) for i in range(250)]
        api.raw(PODS, b"\n".join(lines) + b"\n")
        await until(lambda: len(seen.pods) == 250)


async def test_bookmarks_move_the_version_on(api, client, seen):
    async with watching(client, seen):
        await until(lambda: api.watching(PODS) == 1)
        api.bookmark(PODS)
        api.compact()
        api.end_watches()
        await until(lambda: api.count("WATCH", "/pods") == 2)
        await until(lambda: api.watching(PODS) == 1)

    assert api.requests[-1].query["resourceVersion"] == "101"


async def test_a_missing_crd_is_reported_and_picked_up_later(api, client, seen):
    resource = quota()[2]
    api.missing.add(resource.path)

    async with watching(client, seen, resource) as watcher:
        await until(lambda: len(seen.problems) >= 1)
        assert not watcher.synced.is_set()
        api.missing.clear()
        await watcher.synced.wait()

    want = f"cannot list clusterqueues: the API server does not serve {resource.path}; apply manifests/crd"
    assert seen.problems == [want, ""]


async def test_a_missing_permission_names_the_verb_and_the_grant(api, client, seen):
    api.fail("LIST", "/pods", Fault(status=403, message="forbidden: user x"), times=1)

    async with watching(client, seen) as watcher:
        await watcher.synced.wait()

    assert seen.problems[0] == (
        'may not list pods: grant verbs [list, watch] on resource "pods" of apiGroup "" to our service account, '
        "as ClusterRole cohort-extender does (manifests/base/rbac.yaml)"
    )


async def test_namespaces_come_without_what_we_do_not_read(api, client, seen):
    api.put(
        "/api/v1/namespaces", {"metadata": {"name": "research", "labels": {"a": "b"}}, "spec": {"finalizers": ["x"]}}
    )

    async with watching(client, seen, namespaces()) as watcher:
        await watcher.synced.wait()
        await until(lambda: api.watching("/api/v1/namespaces") == 1)

    accepts = [request.headers["Accept"] for request in api.requests]
    assert [accept.split(";")[1] for accept in accepts] == ["as=PartialObjectMetadataList", "as=PartialObjectMetadata"]
    assert seen.facts == [NamespaceSeen("research", (("a", "b"),))]


async def test_a_sign_of_life_is_any_byte(api, client, seen):
    clock = FakeClock()
    async with watching(client, seen, clock=clock) as watcher:
        await until(lambda: api.watching(PODS) == 1)
        clock.forward(40)
        before = watcher.age_s()
        api.bookmark(PODS)
        await until(lambda: watcher.age_s() == 0)

    assert before == 40


async def test_a_sink_that_fails_ends_the_watcher(api, client):
    api.put(PODS, pod_json("p0"))

    def sink(facts):
        raise AssertionError("the state is in doubt")

    with pytest.raises(AssertionError):
        await Watcher(client, pods(), sink).run()


async def test_a_large_list_leaves_room_for_others(api, client, seen):
    for index in range(1000):
        api.put(PODS, pod_json(f"p{index}"))
    turns = 0

    async def neighbour():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with watching(client, seen) as watcher:
        task = asyncio.create_task(neighbour())
        await watcher.synced.wait()
        task.cancel()

    assert len(seen.pods) == 1000
    assert turns >= 10


def test_the_table_of_resources():
    table = everything("v1beta1", pod_labels="a=b", pod_fields="status.phase!=Failed")

    assert [resource.path for resource in table] == [
        "/apis/kueue.x-k8s.io/v1beta1/resourceflavors",
        "/apis/kueue.x-k8s.io/v1beta1/cohorts",
        "/apis/kueue.x-k8s.io/v1beta1/clusterqueues",
        "/apis/kueue.x-k8s.io/v1beta1/localqueues",
        "/apis/kueue.x-k8s.io/v1beta1/workloadpriorityclasses",
        "/api/v1/namespaces",
        "/api/v1/nodes",
        "/apis/apps/v1/statefulsets",
        "/apis/scheduling.k8s.io/v1alpha2/podgroups",
        "/api/v1/pods",
    ]
    assert [resource.name for resource in table if resource.optional] == ["podgroups"]
    assert table[-1].params == {"labelSelector": "a=b", "fieldSelector": "status.phase!=Failed"}


@pytest.mark.parametrize(
    ("answer", "want"),
    [
        pytest.param(b'{"versions":[{"version":"v1beta1"},{"version":"v1beta2"}]}', "v1beta2", id="both"),
        pytest.param(b'{"versions":[{"version":"v1beta1"}]}', "v1beta1", id="only the older"),
        pytest.param(b'{"versions":null}', "v1beta2", id="none"),
        pytest.param(b"<html>", "v1beta2", id="no answer to that"),
    ],
)
async def test_the_version_of_the_quota_objects_is_what_the_cluster_serves(api, client, answer, want):
    api.fail("LIST", "/apis/kueue", Fault(chunks=[answer]))

    assert await kueue_version(client) == want


async def test_before_the_crds_are_there_the_newest_version_is_expected(api, client):
    api.missing.add("/apis/kueue.x-k8s.io")

    assert await kueue_version(client) == "v1beta2"


async def test_a_failure_of_ours_is_not_taken_for_one_of_the_server(api, client):
    api.put(PODS, pod_json("p0"))
    tries = []

    def sink(facts):
        tries.append(facts)
        if len(tries) == 2:
            raise TimeoutError

    task = asyncio.create_task(Watcher(client, pods(), sink).run())
    await until(lambda: api.watching(PODS) == 1)
    api.put(PODS, pod_json("p1"))

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(task, 5)
    assert len(tries) == 2
