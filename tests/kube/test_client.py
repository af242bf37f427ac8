"""The client against a server that misbehaves."""

import asyncio
import os
import socket

import pytest
from orjson import loads

from extender.kube.client import PAGE_ITEMS_FIRST, PAGE_ITEMS_MIN, ApiClient, PatchType, _keepalive_socket
from extender.kube.config import ClusterConfig
from extender.model.errors import Conflict, Gone, TooManyRequests, Unreachable, UserError
from extender.turns import Turns
from tests.support.fake_api import Fault, until
from tests.support.objects import pod_json

PODS = "/api/v1/pods"
POD = "/api/v1/namespaces/research/pods/p"


async def names(client, **options):
    pages = [page async for page in client.pages(PODS, **options)]
    return [[loads(bytes(item))["metadata"]["name"] for item in page.items] for page in pages]


def fill(api, count):
    for index in range(count):
        api.put(PODS, pod_json(f"p{index}"))


async def test_requests_say_who_we_are_and_that_we_want_no_compression(api, client):
    api.put(PODS, pod_json("p"))

    await client.get(POD)

    headers = api.requests[0].headers
    assert headers["User-Agent"] == "cohort-extender"
    assert headers["Accept-Encoding"] == "identity"
    assert headers["Accept"] == "application/json"


async def test_a_list_comes_in_pages(api, client):
    fill(api, 5)

    assert await names(client, limit=2) == [["p0", "p1"], ["p2", "p3"], ["p4"]]


async def test_a_list_without_a_limit_comes_whole(api, client):
    fill(api, 5)

    assert await names(client, limit=0) == [["p0", "p1", "p2", "p3", "p4"]]
    assert "limit" not in api.requests[0].query


async def test_an_empty_list_is_null_and_means_nothing(api, client):
    assert await names(client) == [[]]


async def test_selectors_are_passed_on(api, client):
    fill(api, 1)
    other = pod_json("x")
    other["metadata"]["labels"] = {"team": "other=team&co"}
    api.put(PODS, other)

    assert await names(client, params={"labelSelector": "team=other=team&co"}) == [["x"]]


async def test_pages_grow_up_to_the_limit_while_objects_are_small(api, client):
    for index in range(PAGE_ITEMS_FIRST + 170):
        api.put(PODS, pod_json(f"p{index:03}"))

    assert [len(page) for page in await names(client, limit=120)] == [PAGE_ITEMS_FIRST, 120, 50]


async def test_a_page_is_cut_in_a_turn(api):
    api.put(PODS, pod_json("p0"))
    turns = Turns()
    client = ApiClient(ClusterConfig(server=api.url), turns=turns)
    async with turns:
        asked = asyncio.create_task(names(client))
        await until(lambda: api.requests)
        await asyncio.sleep(0.05)
        early = asked.done()
    got = await asked
    await client.close()

    assert (early, got) == (False, [["p0"]])


async def test_pages_shrink_when_objects_are_large(api, client):
    for index in range(120):
        pod = pod_json(f"p{index:03}")
        pod["metadata"]["annotations"]["big"] = "x" * 100_000
        api.put(PODS, pod)

    pages = [len(page) for page in await names(client, limit=100)]

    assert pages == [100, 20]
    assert [int(request.query["limit"]) for request in api.requests] == [100, PAGE_ITEMS_MIN]


async def test_a_page_that_expired_is_gone(api, client):
    fill(api, 3)
    pages = client.pages(PODS, limit=2)
    await anext(pages)
    api.version += 1
    api.compact()

    with pytest.raises(Gone) as error:
        await anext(pages)

    assert error.value.status == 410


@pytest.mark.parametrize(
    ("status", "headers", "want", "retry_after_s"),
    [
        (400, {}, UserError, None),
        (401, {}, UserError, None),
        (403, {}, UserError, None),
        (404, {}, Gone, None),
        (409, {}, Conflict, None),
        (410, {}, Gone, None),
        (422, {}, UserError, None),
        (429, {"Retry-After": "7"}, TooManyRequests, 7.0),
        (429, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, TooManyRequests, None),
        (503, {}, TooManyRequests, None),
        (500, {}, Unreachable, None),
        (504, {}, Unreachable, None),
        (302, {"Location": "http://127.0.0.1:1/"}, UserError, None),
    ],
)
async def test_what_a_refusal_means(api, client, status, headers, want, retry_after_s):
    api.fail("GET", "/pods/p", Fault(status=status, message="because", headers=headers), times=2)

    with pytest.raises(want) as error:
        await client.get(POD)

    assert str(error.value) == f"GET {POD}: {status} because"
    assert error.value.status == status
    assert getattr(error.value, "retry_after_s", None) == retry_after_s


async def test_what_a_proxy_says_is_not_repeated(api, client):
    api.fail("LIST", "/pods", Fault(chunks=[b"<html>secret</html>"]))

    with pytest.raises(Unreachable) as error:
        await names(client)

    assert str(error.value) == "GET /api/v1/pods: the answer is not a list"


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault(hang=True), id="no answer"),
        pytest.param(Fault(cut=True), id="the connection breaks"),
        pytest.param(Fault(apply=True, hang=True), id="no answer although it was done"),
        pytest.param(Fault(chunks=[b'{"metadata"'], hang=True), id="half an answer"),
    ],
)
async def test_a_request_always_ends(api, fault):
    api.put(PODS, pod_json("p"))
    api.fail("PATCH", "/pods/p", fault)
    client = ApiClient(ClusterConfig(server=api.url), timeout_s=0.1)

    with pytest.raises(Unreachable) as error:
        await client.patch(POD, b'{"metadata":{"labels":{"a":"b"}}}', kind=PatchType.MERGE)

    await client.close()
    assert f"no answer from {api.url}" in str(error.value)
    assert ("a" in api.get(PODS, "research/p")["metadata"]["labels"]) is fault.apply


async def test_nobody_listens():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        server = f"http://127.0.0.1:{held.getsockname()[1]}"
        client = ApiClient(ClusterConfig(server=server))

        with pytest.raises(Unreachable) as error:
            await client.get(POD)

        await client.close()
    assert str(error.value) == (
        f"GET {POD}: no connection to {server} (Connection refused): does it run, is the address right?"
    )


async def test_a_server_whose_name_nobody_knows():
    client = ApiClient(ClusterConfig(server="http://nowhere.invalid:6443"))

    with pytest.raises(Unreachable) as error:
        await client.get(POD)

    await client.close()
    assert "the name of http://nowhere.invalid:6443 cannot be resolved" in str(error.value)


async def test_a_patch_names_its_type_and_manager(api, client):
    api.put(PODS, pod_json("p"))

    answer = await client.patch(POD, b"{}", kind=PatchType.STRATEGIC, field_manager="me", force=True, partial=True)

    request = api.requests[0]
    assert request.content_type == "application/strategic-merge-patch+json"
    assert dict(request.query) == {"fieldManager": "me", "force": "true"}
    assert b"PartialObjectMetadata" in answer


async def test_the_other_verbs(api, client):
    await client.post("/api/v1/namespaces/research/pods", b'{"metadata":{"name":"new"}}')
    await client.put("/api/v1/namespaces/research/pods/new", b'{"metadata":{"name":"new"},"spec":{"priority":1}}')
    put = api.get(PODS, "research/new")["spec"]
    await client.delete("/api/v1/namespaces/research/pods/new")

    assert put == {"priority": 1}
    assert api.objects[PODS] == {}


async def test_a_token_file_is_read_again_when_it_changes(api, tmp_path):
    file = tmp_path / "token"
    file.write_text(" first\n")
    client = ApiClient(ClusterConfig(server=api.url, token_file=str(file)))
    api.put(PODS, pod_json("p"))
    for token in ("first", "second"):
        file.write_text(token)
        os.utime(file, ns=(1, 1 if token == "first" else 2))
        api.token = token
        await client.get(POD)
    await client.close()

    assert len(api.requests) == 2


async def test_after_a_401_the_token_is_read_once_more(api, tmp_path):
    file = tmp_path / "token"
    file.write_text("old")
    client = ApiClient(ClusterConfig(server=api.url, token_file=str(file)))
    api.put(PODS, pod_json("p"))
    api.token = "old"
    await client.get(POD)
    stamp = file.stat().st_mtime_ns
    file.write_text("new")
    os.utime(file, ns=(stamp, stamp))  # a clock too coarse to show the change
    api.token = "new"

    await client.get(POD)

    await client.close()
    assert len(api.requests) == 3


async def test_a_401_that_stays_is_told(api):
    api.token = "right"
    client = ApiClient(ClusterConfig(server=api.url, token="wrong"))

    with pytest.raises(UserError) as error:
        await client.get(POD)

    await client.close()
    assert error.value.status == 401
    assert len(api.requests) == 2


async def test_a_plugin_is_asked_at_first_and_after_a_401(api):
    tokens = iter(["one", "two"])

    async def load():
        return next(tokens)

    client = ApiClient(ClusterConfig(server=api.url, token_loader=load))
    api.put(PODS, pod_json("p"))
    api.token = "one"
    await client.get(POD)
    await client.get(POD)
    api.token = "two"
    await client.get(POD)
    await client.close()

    assert len(api.requests) == 4


async def test_a_token_file_that_is_gone_keeps_the_last_token(api, tmp_path):
    file = tmp_path / "token"
    file.write_text("t")
    client = ApiClient(ClusterConfig(server=api.url, token_file=str(file)))
    api.put(PODS, pod_json("p"))
    api.token = "t"
    await client.get(POD)
    file.unlink()
    await client.get(POD)
    await client.close()

    without = ApiClient(ClusterConfig(server=api.url, token_file=str(file)))
    with pytest.raises(UserError):
        await without.get(POD)
    await without.close()


async def test_a_watch_hands_over_lines_as_they_come(api, client):
    params = {"watch": "1", "resourceVersion": "100"}
    async with client.watch(PODS, params=params, silence_s=5) as stream:
        await until(lambda: api.watching(PODS) == 1)
        api.raw(PODS, b'{"a":1}\n{"b":2}\n{"c"')
        first = await anext(stream)
        api.raw(PODS, b":3}\n")
        second = await anext(stream)
        api.end_watches()
        rest = [lines async for lines in stream]

    assert (first, second, rest) == ([b'{"a":1}', b'{"b":2}'], [b'{"c":3}'], [])


async def test_an_event_may_be_longer_than_any_buffer(api, client):
    long = b"x" * 3_000_000
    async with client.watch(PODS, params={"watch": "1"}, silence_s=5) as stream:
        await until(lambda: api.watching(PODS) == 1)
        api.raw(PODS, long + b"\n")
        api.end_watches()
        got = [line async for lines in stream for line in lines]

    assert got == [long]


async def test_a_silent_watch_is_taken_for_dead(api, client):
    async with client.watch(PODS, params={"watch": "1"}, silence_s=0.05) as stream:
        with pytest.raises(Unreachable):
            await anext(stream)


async def test_a_watch_that_is_cut_is_unreachable(api, client):
    api.fail("WATCH", "/pods", Fault(chunks=[b'{"type":"ADD'], cut=True))

    async with client.watch(PODS, params={"watch": "1"}, silence_s=5) as stream:
        with pytest.raises(Unreachable):
            _ = [lines async for lines in stream]


async def test_a_watch_that_is_refused_says_why(api, client):
    api.fail("WATCH", "/pods", Fault(status=410, message="too old"))

    with pytest.raises(Gone) as error:
        async with client.watch(PODS, params={"watch": "1"}, silence_s=5):
            pass

    assert error.value.status == 410


async def test_the_kernel_watches_idle_connections(client):
    with _keepalive_socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 1))) as made:
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000


async def test_a_server_below_a_path(api):
    api.put(PODS, pod_json("p"))
    client = ApiClient(ClusterConfig(server=f"{api.url}/"))

    assert b'"p"' in await client.get(POD)

    await client.close()


def test_credentials_stay_out_of_logs():
    assert "secret" not in repr(ClusterConfig(server="https://x", token="secret", key=b"secret"))


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"one\ntwo", id="two lines"),
        pytest.param(b"\xff\xfe", id="no text"),
        pytest.param("тайна".encode(), id="letters that no header has"),
    ],
)
async def test_a_token_file_without_a_token_is_named_and_the_last_token_is_kept(api, tmp_path, content):
    file = tmp_path / "token"
    file.write_bytes(content)
    config = ClusterConfig(server=api.url, token_file=str(file))
    fresh, old = ApiClient(config), ApiClient(config)
    api.put(PODS, pod_json("p"))
    api.token = "good"
    with pytest.raises(UserError) as error:
        await fresh.get(POD)
    await fresh.close()
    file.write_text("good")
    await old.get(POD)
    file.write_bytes(content)
    os.utime(file, ns=(1, 1))
    await old.get(POD)
    await old.close()

    assert str(error.value) == f"the token file {file} cannot be read: it holds no token"
    assert api.requests[-1].headers["Authorization"] == "Bearer good"
