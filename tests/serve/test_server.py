"""The listeners as a client sees them: routes, limits, health, keep-alive, drain, TLS."""

import asyncio
import contextlib
import ssl
import zlib
from datetime import UTC, datetime

import aiohttp
import orjson
import pytest

from extender.certs.authority import issue, make_authority
from extender.certs.keeper import server_context
from extender.model.errors import UserError
from extender.serve.extender import Extender
from extender.serve.metrics import Metrics
from extender.serve.series import LINES_MAX
from extender.serve.server import Server
from extender.serve.webhook import Webhook
from extender.turns import Turns
from tests.serve.doubles import FakeHealth, FakePlacement, FakeQueues, golden, review
from tests.serve.guard_cases import WRITER, pod

LIMIT = 64 * 1024


class Served:
    """A running server, a client, and the doubles behind."""

    def __init__(self, placement, health, **limits):
        self.placement = placement
        self.health = health
        self.metrics = Metrics()
        extender = Extender(placement)
        webhook = Webhook(FakeQueues(), writer=WRITER)
        self.server = Server(
            extender={
                "/scheduler/filter": extender.filter,
                "/scheduler/prioritize": extender.prioritize,
                "/scheduler/preempt": extender.preempt,
            },
            webhooks={"/webhooks/mutate-pods": webhook.mutate, "/webhooks/validate-pods": webhook.validate},
            health=health,
            metrics=self.metrics,
            body_max={"extender": LIMIT, "webhook": LIMIT},
            **limits,
        )
        self.client = None

    def url(self, listener, path):
        return f"http://127.0.0.1:{self.server.ports[listener]}{path}"

    async def get(self, path):
        async with self.client.get(self.url("http", path)) as reply:
            return reply.status, await reply.read()

    async def ask(self, verb, body, **kwargs):
        async with self.client.post(self.url("extender", f"/scheduler/{verb}"), data=body, **kwargs) as reply:
            return reply, await reply.read()


PORTS = {"extender": 0, "webhook": 0, "http": 0}


@pytest.fixture
async def served():
    made = Served(FakePlacement(), FakeHealth())
    await made.server.start(PORTS, host="127.0.0.1", tls={})
    async with aiohttp.ClientSession() as made.client:
        yield made
    await made.server.stop()


async def test_the_scheduler_gets_its_answer_with_a_length_and_a_type(served):
    reply, body = await served.ask("filter", golden("filter.request.json"))

    assert reply.status == 200
    assert reply.headers["Content-Type"] == "application/json"
    assert int(reply.headers["Content-Length"]) == len(body)
    assert orjson.loads(body)["NodeNames"] == ["gpu-a", "gpu-b", "gpu-c", "gpu-d"]


async def test_a_connection_is_kept_for_the_next_question(served):
    for _ in range(3):
        await served.ask("filter", golden("filter.request.json"))

    assert len(served.client.connector._conns) == 1


async def test_the_api_server_gets_its_answer(served):
    url = served.url("webhook", "/webhooks/mutate-pods?timeout=3s")
    async with served.client.post(url, data=review(pod(queue="a"))) as reply:
        answer = orjson.loads(await reply.read())

    assert (reply.status, answer["response"]["patchType"]) == (200, "JSONPatch")


@pytest.mark.parametrize(
    ("method", "path", "want"),
    [
        pytest.param("POST", "/scheduler/bind", 404, id="a verb we do not have"),
        pytest.param("POST", "/scheduler/filter/", 404, id="a path with a slash too many"),
        pytest.param("GET", "/scheduler/filter", 405, id="the wrong method"),
    ],
)
async def test_other_requests_are_refused(served, method, path, want):
    async with served.client.request(method, served.url("extender", path)) as reply:
        assert reply.status == want


async def test_a_body_over_the_limit_is_refused_before_it_is_read(served):
    reply, _ = await served.ask("filter", b"x" * (LIMIT + 1))

    assert reply.status == 413
    assert served.placement.asked == []


async def test_a_body_that_hides_its_length_is_refused_when_it_is_over_the_limit(served):
    async def chunks():
        for _ in range(LIMIT // 1024 + 8):
            yield b"x" * 1024

    reply, _ = await served.ask("filter", chunks())

    assert reply.status == 413
    assert served.placement.asked == []


async def test_our_own_fault_fails_one_request_and_is_counted(served):
    served.placement.error = ZeroDivisionError("a bug")
    reply, body = await served.ask("filter", golden("filter.request.json"))
    served.placement.error = None
    again, _ = await served.ask("filter", golden("filter.request.json"))

    assert (reply.status, again.status) == (500, 200)
    assert b"bug" not in body
    assert 'cohort_http_requests_total{endpoint="filter",outcome="500"} 1.0' in served.metrics.text().decode()


async def test_health_says_why_not(served):
    fine = [(await served.get(path))[0] for path in ("/livez", "/healthz", "/readyz")]
    served.health.unready = "pods are not listed yet"
    unready = await served.get("/readyz")
    served.health.dead = "the event loop stood still for 40 s"
    dead = await served.get("/livez")

    assert fine == [200, 200, 200]
    assert unready == (503, b"pods are not listed yet\n")
    assert dead == (503, b"the event loop stood still for 40 s\n")


async def test_metrics_and_dump_are_served(served):
    await served.ask("filter", golden("filter.request.json"))
    status, text = await served.get("/metrics")

    assert status == 200
    assert b'cohort_http_requests_total{endpoint="filter",outcome="answered"} 1.0' in text
    assert await served.get("/debug/dump") == (200, b'{"queues":{}}')


async def test_each_part_of_the_metrics_takes_a_turn(served, monkeypatch):
    taken = []
    enter = Turns.__aenter__

    async def counted(turns):
        taken.append(turns)
        await enter(turns)

    monkeypatch.setattr(Turns, "__aenter__", counted)
    for number in range(100):
        served.metrics.admitted(f"q{number}", waited_s=1)
    status, text = await served.get("/metrics")

    assert status == 200
    assert text.count(b"cohort_admission_wait_time_seconds_sum") == 100
    assert len(taken) == len(list(served.metrics.parts())) + 1


async def test_a_scrape_does_not_end_with_a_metric_that_fills_its_parts(served):
    for number in range(LINES_MAX - 1):  # with the head as many as a part holds, so that nothing is left for the next
        served.metrics.active(f"q{number}", number)
    served.metrics.usage("q0", "default", "cpu", 1.5)
    _, text = await served.get("/metrics")

    assert text.count(b"cohort_admitted_active_workloads{") == LINES_MAX - 1
    assert b'cohort_cluster_queue_resource_usage{cluster_queue="q0",flavor="default",resource="cpu"} 1.5' in text


async def test_a_draining_server_is_unready_and_answers_on_while_it_sends_connections_away(served):
    await served.ask("filter", golden("filter.request.json"))
    await served.server.drain(0)

    reply, body = await served.ask("filter", golden("filter.request.json"))

    assert (reply.status, reply.headers["Connection"]) == (200, "close")
    assert orjson.loads(body)["Error"] == ""
    assert await served.get("/readyz") == (503, b"draining\n")
    assert (await served.get("/livez"))[0] == 200


async def test_a_stopped_server_accepts_nothing(served):
    await served.server.stop()

    with pytest.raises(aiohttp.ClientConnectorError):
        await served.ask("filter", b"")


async def test_a_port_that_is_taken_is_named_with_the_way_out(served):
    taken = served.server.ports["http"]
    second = Served(served.placement, served.health).server

    with pytest.raises(UserError) as error:
        await second.start({**PORTS, "http": taken}, host="127.0.0.1", tls=dict.fromkeys(PORTS))
    await second.stop()

    assert str(error.value) == (
        f"ports.http: cannot listen on 127.0.0.1 port {taken} (Address already in use); "
        "end what listens there, or choose another port or bindAddress in the configuration file"
    )


@pytest.fixture
def tls(tmp_path):
    now = datetime.now(UTC)
    authority = make_authority(now)
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    pair = issue(authority, ["127.0.0.1"], now)
    (tmp_path / "both.pem").write_bytes(pair.certificate + pair.key)
    client = issue(authority, ["kube-scheduler"], now, client=True)
    (tmp_path / "client.pem").write_bytes(client.certificate + client.key)
    return tmp_path


def trusting(folder, *, with_certificate=False):
    context = ssl.create_default_context(cafile=folder / "ca.crt")
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    if with_certificate:
        context.load_cert_chain(folder / "client.pem")
    return context


async def test_a_client_without_a_certificate_is_turned_away_when_one_is_asked_for(tls):
    made = Served(FakePlacement(), FakeHealth())
    context = server_context(client_ca_file=str(tls / "ca.crt"))
    context.load_cert_chain(tls / "both.pem")
    await made.server.start(PORTS, host="127.0.0.1", tls={"extender": context})
    url = made.url("extender", "/scheduler/filter").replace("http:", "https:")
    async with aiohttp.ClientSession() as client:
        with pytest.raises(aiohttp.ClientError):
            await client.post(url, data=golden("filter.request.json"), ssl=trusting(tls))
        async with client.post(
            url, data=golden("filter.request.json"), ssl=trusting(tls, with_certificate=True)
        ) as reply:
            status = reply.status
    await made.server.stop()

    assert status == 200


async def test_answers_overlap_only_in_the_network_never_in_the_verdict(served):
    replies = await asyncio.gather(*(served.ask("filter", golden("filter.request.json")) for _ in range(50)))

    assert {reply.status for reply, _ in replies} == {200}
    assert len(served.placement.asked) == 50


async def test_a_body_that_never_comes_is_not_waited_for():
    made = Served(FakePlacement(), FakeHealth(), body_s_max=0.01)
    await made.server.start(PORTS, host="127.0.0.1", tls={})
    reader, writer = await asyncio.open_connection("127.0.0.1", made.server.ports["extender"])
    writer.write(b"POST /scheduler/filter HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    answer = await reader.read()
    writer.close()
    await made.server.stop()

    assert answer.startswith(b"HTTP/1.1 408 ")


async def test_connections_beyond_the_bound_are_turned_away_and_the_others_served(served, monkeypatch):
    monkeypatch.setattr("extender.serve.server.CONNECTIONS_MAX", 2)
    await served.ask("filter", golden("filter.request.json"))
    port = served.server.ports["extender"]
    second = await asyncio.open_connection("127.0.0.1", port)
    third, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.suppress(ConnectionResetError):
        assert await third.read() == b""
    reply, _ = await served.ask("filter", golden("filter.request.json"))
    for used in (writer, second[1]):
        used.close()

    assert reply.status == 200


@pytest.mark.parametrize(
    "junk",
    [
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", id="TLS on a plain port"),
        pytest.param(b"GET / HTTP/9.9\r\n\r\n", id="a version of the future"),
        pytest.param(b"POST /scheduler/filter HTTP/1.1\r\nContent-Length: -5\r\n\r\n", id="a negative length"),
        pytest.param(b"POST / HTTP/1.1\r\n" + b"A: " + b"b" * 100_000 + b"\r\n\r\n", id="an endless header"),
        pytest.param(
            b"POST /scheduler/filter HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n", id="bad chunks"
        ),
    ],
)
async def test_junk_on_the_wire_ends_its_own_connection_only(served, junk, caplog):
    reader, writer = await asyncio.open_connection("127.0.0.1", served.server.ports["extender"])
    writer.write(junk)
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    reply, _ = await served.ask("filter", golden("filter.request.json"))

    assert answer == b"" or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.0 4"))
    assert reply.status == 200
    assert caplog.text == ""


async def test_what_claims_to_be_compressed_is_not_unpacked(served, caplog):
    bomb = zlib.compress(b" " * 10_000_000)

    reply, body = await served.ask("filter", bomb, headers={"Content-Encoding": "deflate"})

    assert len(bomb) < LIMIT
    assert reply.status == 200
    assert "the request is not what kube-scheduler sends" in orjson.loads(body)["Error"]
    assert caplog.text == ""
