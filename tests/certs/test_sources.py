"""The Secret that replicas share: who writes it, when, and what happens when two do."""

import asyncio
import base64
from datetime import UTC, datetime, timedelta

import pytest

from extender.certs import sources
from extender.certs.authority import is_pair, is_signed_by, issue, make_authority, not_after
from extender.certs.sources import FileSource, SecretSource
from extender.model.errors import TransientError, UserError
from tests.certs.doubles import SECRET, FakeApi

NOW = datetime(2026, 3, 24, 12, tzinfo=UTC)
NAMES = ["cohort-extender.cohort-system.svc", "127.0.0.1"]


def source(api, names=NAMES):
    return SecretSource(api, namespace="cohort-system", name="cohort-extender-certs", names=names)


async def test_the_first_replica_makes_the_secret_and_the_second_reads_it():
    api = FakeApi()

    first = await source(api).load(NOW)
    second = await source(api).load(NOW)

    assert first == second
    assert api.writes == [("POST", SECRET)]
    assert set(api.secret()) == {"ca.crt", "ca.key", "tls.crt", "tls.key"}
    assert is_signed_by(first.serving.certificate, first.bundle)


async def test_the_loser_of_a_race_uses_what_the_winner_wrote():
    api, winner = FakeApi(), FakeApi()
    won = await source(winner).load(NOW)

    def other_replica():
        api.objects.setdefault(SECRET, winner.objects[SECRET])

    api.interfere = other_replica
    lost = await source(api).load(NOW)

    assert lost == won
    assert api.writes == []


async def test_a_certificate_is_renewed_by_the_same_authority_when_it_is_due():
    api = FakeApi()
    old = await source(api).load(NOW)
    later = NOW + timedelta(days=250)

    new = await source(api).load(later)

    assert new.bundle == old.bundle
    assert new.serving != old.serving
    assert not_after(new.serving.certificate) == later + timedelta(days=365)
    assert api.writes == [("POST", SECRET), ("PUT", SECRET)]


async def test_a_new_authority_joins_the_bundle_before_anything_is_signed_with_it():
    api = FakeApi()
    await source(api).load(NOW)
    old = await source(api).load(NOW + timedelta(days=2300))

    both = await source(api).load(NOW + timedelta(days=2440))  # the authority of ten years is due after 2433 days
    switched = await source(api).load(NOW + timedelta(days=2560))

    assert both.serving == old.serving
    assert both.bundle.endswith(old.bundle)
    assert both.bundle.count(b"BEGIN") == 2
    assert switched.bundle == both.bundle
    assert switched.serving != both.serving
    assert not is_signed_by(switched.serving.certificate, old.bundle)
    assert is_signed_by(switched.serving.certificate, both.bundle)


async def test_new_names_need_a_new_certificate():
    api = FakeApi()
    old = await source(api).load(NOW)

    new = await source(api, [*NAMES, "10.96.0.40"]).load(NOW)

    assert new.serving != old.serving
    assert new.bundle == old.bundle


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param({"ca.key": b""}, id="the authority's key is gone"),
        pytest.param({"ca.crt": b"-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n"}, id="nonsense"),
        pytest.param({"tls.crt": b"", "tls.key": b""}, id="no certificate"),
        pytest.param(
            {"ca.key": b"-----BEGIN PRIVATE KEY-----\nnonsense\n-----END PRIVATE KEY-----\n"},
            id="a key of the authority that is none",
        ),
        pytest.param({"tls.key": make_authority(NOW).key}, id="a key of another certificate"),
    ],
)
async def test_a_broken_secret_is_mended(broken):
    api = FakeApi()
    await source(api).load(NOW)
    api.objects[SECRET]["data"] |= {key: base64.b64encode(value).decode() for key, value in broken.items()}

    mended = await source(api).load(NOW)

    assert is_signed_by(mended.serving.certificate, mended.bundle)
    assert api.writes[-1] == ("PUT", SECRET)


async def test_an_empty_secret_of_the_manifests_is_filled():
    api = FakeApi()
    api.objects[SECRET] = {"metadata": {"name": "cohort-extender-certs", "resourceVersion": "7"}}

    filled = await source(api).load(NOW)

    assert api.writes == [("PUT", SECRET)]
    assert is_signed_by(filled.serving.certificate, filled.bundle)


async def test_a_secret_that_others_never_leave_alone_is_given_up_for_now():
    api = FakeApi()
    await source(api).load(NOW)

    def meddle():
        api.objects[SECRET]["metadata"]["resourceVersion"] += "0"

    api.interfere = meddle

    with pytest.raises(TransientError, match="changed 5 times"):
        await source(api).load(NOW + timedelta(days=300))


async def test_files_of_others_are_taken_as_they_are(tmp_path):
    authority = make_authority(NOW)
    pair = issue(authority, NAMES, NOW)
    (tmp_path / "tls.crt").write_bytes(pair.certificate)
    (tmp_path / "tls.key").write_bytes(pair.key)

    without = await FileSource(str(tmp_path)).load(NOW)
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    with_bundle = await FileSource(str(tmp_path)).load(NOW)

    assert (without.serving, without.bundle) == (pair, b"")
    assert with_bundle.bundle == authority.certificate


async def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"tls\.crt: cannot be read"):
        await FileSource(str(tmp_path)).load(NOW)


async def test_each_look_at_a_key_has_a_round_of_the_loop_to_itself(monkeypatch):
    api, rounds, looks = FakeApi(), 0, []
    await source(api).load(NOW)

    async def count():
        nonlocal rounds
        while True:
            await asyncio.sleep(0)
            rounds += 1

    counting = asyncio.create_task(count())
    await asyncio.sleep(0)
    monkeypatch.setattr(sources, "is_pair", lambda *pair: looks.append(rounds) or is_pair(*pair))
    await source(api).load(NOW)
    counting.cancel()

    assert len(looks) == len(set(looks)) == 2
