"""Free ports on the loopback address, for several rigs side by side.

Taken below the range from which the kernel gives ports to outgoing connections, so that none can slip in
between our look and the moment the component binds; drawn at random, so that two rigs seldom look at the
same; and never handed out twice by one process.
"""

from __future__ import annotations

import random
import socket

LOOPBACK = "127.0.0.1"
FIRST, LAST = 20000, 32000
ATTEMPTS_MAX = 1000

_taken: set[int] = set()
_draw = random.SystemRandom()  # not the seeded one: rigs in two processes must differ


def free_port() -> int:
    """A port of the loopback address that nothing listens on and that we have not given away.

    Raises: OSError, when none was found.
    """
    for _ in range(ATTEMPTS_MAX):
        port = _draw.randint(FIRST, LAST)
        if port not in _taken and _bindable(port):
            _taken.add(port)
            return port
    raise OSError(f"no free port between {FIRST} and {LAST}")


def _bindable(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
