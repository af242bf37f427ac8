"""What the sans-IO handlers and the server share: a reply, and the limits of a request."""

from typing import NamedTuple


class Reply(NamedTuple):
    """An HTTP answer. *outcome* is the word it is counted under; *content_type* as in the header."""

    status: int
    body: bytes
    outcome: str
    content_type: str = "application/json"


def refuse(status: int, why: str) -> Reply:
    """A plain refusal; kube-scheduler does not read its body, people do."""
    return Reply(status, f"{why}\n".encode(errors="replace"), str(status), "text/plain; charset=utf-8")
