"""Cuts a byte stream into lines, with a limit of our own: one object may be larger than an HTTP library's buffer."""

from extender.model.errors import Unreachable


class Lines:
    """Feed it chunks, take whole lines. What is left at the end of a stream is a line cut short and is dropped."""

    def __init__(self, line_bytes_max: int) -> None:
        self._line_bytes_max = line_bytes_max
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that *chunk* completes, without line ends and empty ones.

        Cost: O(chunk), however many chunks a line takes. Raises: Unreachable, when a line exceeds the limit.
        """
        head, newline, rest = chunk.partition(b"\n")
        self._size += len(head)
        if self._size > self._line_bytes_max:
            raise Unreachable(f"a line of the watch is longer than {self._line_bytes_max} bytes")
        self._parts.append(head)
        if not newline:
            return []
        first = b"".join(self._parts)
        *whole, tail = rest.split(b"\n")
        self._parts, self._size = [tail], len(tail)
        return [line for line in (first, *whole) if line]
