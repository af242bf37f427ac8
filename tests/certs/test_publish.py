"""The bundle in the webhook configurations."""

import base64

from extender.certs.publish import Publisher
from tests.certs.doubles import FakeApi

BUNDLE = b"-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n"


async def test_the_bundle_is_written_to_every_webhook_and_nothing_else_is():
    api = FakeApi()
    mutating = api.add_hooks("mutatingwebhookconfigurations", "a.example.com", "b.example.com")
    validating = api.add_hooks("validatingwebhookconfigurations", "c.example.com")

    written = await Publisher(api).publish(BUNDLE)

    assert written == 2
    for hook in mutating["webhooks"] + validating["webhooks"]:
        assert base64.b64decode(hook["clientConfig"]["caBundle"]) == BUNDLE
        assert hook["clientConfig"]["service"] == {"name": "s", "namespace": "n"}


async def test_what_is_already_there_is_not_written_again():
    api = FakeApi()
    api.add_hooks("mutatingwebhookconfigurations", "a.example.com")
    publisher = Publisher(api)
    await publisher.publish(BUNDLE)

    assert await publisher.publish(BUNDLE) == 0
    assert await publisher.publish(BUNDLE * 2) == 1


async def test_configurations_that_are_not_installed_are_passed_over():
    assert await Publisher(FakeApi()).publish(BUNDLE) == 0
