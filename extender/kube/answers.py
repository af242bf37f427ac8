"""What the API server's refusals mean, as exceptions sorted by whose move is next.

Messages carry the API server's own sentence (the ``message`` of its Status), never a body: bodies hold secrets.
"""

import os
import re
from collections.abc import Mapping
from typing import Final

import aiohttp
import msgspec

from extender.model.errors import (
    UNREADABLE,
    Conflict,
    ExtenderError,
    Gone,
    TooManyRequests,
    Unreachable,
    UserError,
)

_MESSAGE_LENGTH_MAX: Final = 500
_RETRY_AFTER = re.compile(r"\s*(\d{1,6})\s*")


class _Details(msgspec.Struct, gc=False):
    retryAfterSeconds: int | None = None  # noqa: N815 - the API's name


class Status(msgspec.Struct):
    """The fields we read of a ``Status`` object, the body of every refusal and of ERROR events."""

    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: _Details | None = None


_STATUS = msgspec.json.Decoder(Status)


def read_status(body: bytes) -> Status:
    """The Status in *body*, an empty one when there is none: proxies answer with anything."""
    try:
        return _STATUS.decode(body)
    except UNREADABLE:
        return Status()


def retry_after_s(headers: Mapping[str, str], status: Status) -> float | None:
    """How long the answer asks us to wait, in seconds: by header, else by the Status. None: it does not say."""
    match = _RETRY_AFTER.fullmatch(headers.get("Retry-After", ""))
    if match:
        return float(match[1])
    seconds = status.details.retryAfterSeconds if status.details else None
    return float(seconds) if seconds and seconds > 0 else None


def no_answer(asked: str, error: Exception, *, server: str) -> Unreachable:
    """The exception for a request that got no answer: to whom it went, why none came, and where to look."""
    match error:
        case aiohttp.ClientConnectorCertificateError(certificate_error=why):
            text = f"the certificate of {server} is not trusted ({why}): is this the CA of that cluster?"
        case aiohttp.ClientConnectorDNSError():
            text = f"the name of {server} cannot be resolved: is the address right?"
        case aiohttp.ClientConnectorError(os_error=why):
            cause = os.strerror(why.errno) if why.errno else str(why)
            text = f"no connection to {server} ({cause}): does it run, is the address right?"
        case TimeoutError():
            text = f"no answer from {server} in time"
        case _:
            text = f"no answer from {server} ({type(error).__name__}: {error})"
    return Unreachable(f"{asked}: {text[:_MESSAGE_LENGTH_MAX]}")


def error_of(http_status: int, body: bytes, headers: Mapping[str, str], *, asked: str) -> ExtenderError:
    """The exception for an answer other than 2xx. *asked* names verb and path.

    409 → Conflict; 404 and 410 → Gone; 429 and 503 → TooManyRequests; 500 and above → Unreachable, since the API server
    may or may not have done it; every other one → UserError: to ask again changes nothing.
    """
    status = read_status(body)
    said = (status.message or status.reason or "no message")[:_MESSAGE_LENGTH_MAX]
    text = f"{asked}: {http_status} {said}"
    if http_status == 409:
        return Conflict(text, status=http_status)
    if http_status in (404, 410):
        return Gone(text, status=http_status)
    if http_status in (429, 503):
        return TooManyRequests(text, status=http_status, retry_after_s=retry_after_s(headers, status))
    if http_status >= 500:
        return Unreachable(text, status=http_status)
    return UserError(text, status=http_status)
