"""Exceptions, sorted by whose move is next. "Does not fit" is no error: it is a verdict with a reason."""


class ExtenderError(Exception):
    """Anything that this service raises on purpose."""


class UserError(ExtenderError):
    """An object or a request is wrong: tell its owner, change nothing.

    The text names the field and the way out; ``inside`` puts the object or the enclosing field in front.
    """

    def inside(self, where: str) -> "UserError":
        """The same error as seen from an enclosing object or field."""
        return UserError(f"{where}: {self}")


class TransientError(ExtenderError):
    """The world moved or was out of reach: try again, within bounds."""


class Conflict(TransientError):
    """Somebody wrote the object first; the watch brings the newer state."""


class Gone(TransientError):
    """The object, or the version asked for, does not exist any more."""


class Unreachable(TransientError):
    """No answer: the outcome of what was asked is unknown."""


class InvariantError(ExtenderError):
    """We are wrong: on the watch path stop and rebuild, on HTTP fail that one request."""
