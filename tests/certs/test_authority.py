"""The authority and its certificates, as a strict client judges them."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from extender.certs.authority import (
    LEAF_LIFE,
    Pair,
    covers,
    is_due,
    is_signed_by,
    issue,
    join,
    make_authority,
    not_after,
    service_names,
)

NOW = datetime(2026, 3, 24, 12, tzinfo=UTC)
NAMES = [*service_names("cohort-extender", "cohort-system"), "10.96.0.40"]


@pytest.fixture(scope="module")
def authority():
    return make_authority(NOW)


@pytest.fixture(scope="module")
def leaf(authority):
    return issue(authority, NAMES, NOW)


def extension(pair, kind):
    return x509.load_pem_x509_certificate(pair.certificate).extensions.get_extension_for_class(kind)


def test_a_service_is_called_by_four_names():
    want = [
        "cohort-extender.cohort-system.svc",
        "cohort-extender.cohort-system",
        "cohort-extender",
        "cohort-extender.cohort-system.svc.cluster.local",
    ]

    assert service_names("cohort-extender", "cohort-system") == want


def test_strict_clients_find_what_they_ask_for(authority, leaf):
    for pair, ca in ((authority, True), (leaf, False)):
        constraints = extension(pair, x509.BasicConstraints)
        assert (constraints.critical, constraints.value.ca) == (True, ca)
        usage = extension(pair, x509.KeyUsage)
        assert (usage.critical, usage.value.key_cert_sign, usage.value.digital_signature) == (True, ca, not ca)
        subject = extension(pair, x509.SubjectKeyIdentifier)
        assert subject.value.digest
        assert extension(pair, x509.AuthorityKeyIdentifier).value.key_identifier == (
            extension(authority, x509.SubjectKeyIdentifier).value.digest
        )


def test_a_certificate_is_valid_from_an_hour_ago_so_that_slow_clocks_accept_it(leaf):
    found = x509.load_pem_x509_certificate(leaf.certificate)

    assert found.not_valid_before_utc == NOW - timedelta(hours=1)
    assert not_after(leaf.certificate) == NOW + LEAF_LIFE


def test_a_certificate_never_outlives_its_authority():
    authority = make_authority(NOW, life=timedelta(days=10))

    assert not_after(issue(authority, NAMES, NOW).certificate) == NOW + timedelta(days=10)


@pytest.mark.parametrize(
    ("names", "want"),
    [
        pytest.param(
            ["cohort-extender.cohort-system.svc", "10.96.0.40"], True, id="names and addresses it was made for"
        ),
        pytest.param(["10.96.0.41"], False, id="an address it was not"),
    ],
)
def test_covers(leaf, names, want):
    assert covers(leaf.certificate, names) is want


def test_an_authority_covers_nothing(authority):
    assert covers(authority.certificate, ["cohort-extender"]) is False


@pytest.mark.parametrize(
    ("days", "want"),
    [pytest.param(242, False, id="not yet"), pytest.param(244, True, id="after two thirds of its life")],
)
def test_a_certificate_is_due_after_two_thirds_of_its_life(leaf, days, want):
    assert is_due(leaf.certificate, NOW + timedelta(days=days)) is want


def test_a_signature_is_checked_against_every_authority_of_the_bundle(authority, leaf):
    stranger = make_authority(NOW)

    assert is_signed_by(leaf.certificate, stranger.certificate + authority.certificate)
    assert not is_signed_by(leaf.certificate, stranger.certificate)


def test_a_bundle_has_the_newest_first_each_once_and_none_that_has_ended(authority):
    old = make_authority(NOW - timedelta(days=20), life=timedelta(days=10))
    new = make_authority(NOW)

    bundle = join(new.certificate, authority.certificate + old.certificate + new.certificate, NOW)

    assert bundle == new.certificate + authority.certificate


def test_a_key_is_never_printed(leaf):
    assert "PRIVATE" not in repr(leaf)
    assert "PRIVATE" not in f"{[leaf]}"
    assert isinstance(leaf, Pair)
