"""Exceptions, sorted by whose move is next. "Does not fit" is no error: it is a verdict with a reason."""

from typing import Final

import msgspec

UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for text that is not what was asked for, JSON or not: also for what is nested too deeply."""


class ExtenderError(Exception):
    """Anything that this service raises on purpose.

    ``status`` is the HTTP status of the answer that the error stands for, 0 if it stands for none.
    """

    def __init__(self, text: str = "", *, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class UserError(ExtenderError):
    """An object or a request is wrong: tell its owner, change nothing.

    The text names the field and the way out; ``inside`` puts the object or the enclosing field in front.
    """

    def inside(self, where: str) -> "UserError":
        """The same error as seen from an enclosing object or field."""
        return UserError(f"{where}: {self}", status=self.status)


class TransientError(ExtenderError):
    """The world moved or was out of reach: try again, within bounds."""


class Conflict(TransientError):
    """Somebody wrote the object first; the watch brings the newer state."""


class Gone(TransientError):
    """The object, or the version asked for, does not exist any more."""


class Unreachable(TransientError):
    """No answer: the outcome of what was asked is unknown."""


class TooManyRequests(TransientError):
    """Asked to wait (429, 503). ``retry_after_s`` is how long, None when the answer does not say."""

    def __init__(self, text: str = "", *, status: int = 429, retry_after_s: float | None = None) -> None:
        super().__init__(text, status=status)
        self.retry_after_s = retry_after_s


class NotYetSeen(TransientError):
    """Our watch is behind what the question shows: ask again soon."""


class InvariantError(ExtenderError):
    """We are wrong: on the watch path stop and rebuild, on HTTP fail that one request."""


def no_passphrase() -> str:
    """For ``SSLContext.load_cert_chain``, which would ask a terminal. Raises: UserError, for an encrypted key."""
    raise UserError("the private key is encrypted and nobody is there to type its passphrase: store it without one")
