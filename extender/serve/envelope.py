"""AdmissionReview ``admission.k8s.io/v1`` around an object of any shape: bytes to the question. No I/O.

Source: webhooks specification, section 2.
"""

from typing import Final, Generic, TypeVar

import msgspec

from extender.model.errors import UserError

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"

Body = TypeVar("Body")


class UserInfo(msgspec.Struct, frozen=True):
    """Who asks."""

    username: str = ""


class GroupKind(msgspec.Struct, frozen=True):
    """What it is about."""

    group: str = ""
    kind: str = ""


class Request(msgspec.Struct, Generic[Body], rename="camel"):
    """One question of the API server. ``uid`` names this round trip and nothing else."""

    uid: str
    kind: GroupKind = GroupKind()
    operation: str = ""
    namespace: str = ""
    sub_resource: str = ""
    user_info: UserInfo = UserInfo()
    object: Body | None = None
    old_object: Body | None = None

    def is_about(self, group: str, kind: str) -> bool:
        """Whether it is about an object of this kind itself, not one of its subresources."""
        return (self.kind.group, self.kind.kind) == (group, kind) and not self.sub_resource


class Question(msgspec.Struct, Generic[Body], rename="camel"):
    """The envelope."""

    api_version: str
    kind: str
    request: Request[Body]


def read(decoder: msgspec.json.Decoder[Question[Body]], body: bytes) -> Request[Body]:
    """The question in *body*. Raises: UserError, for anything that is no AdmissionReview v1 of what *decoder* reads."""
    try:
        review = decoder.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise UserError(f"not an AdmissionReview: {error}") from error
    if review.api_version != API_VERSION or review.kind != KIND:
        raise UserError(f"expected {API_VERSION} {KIND}")
    return review.request
