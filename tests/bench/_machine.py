"""What the machine gave: CPU time and memory of processes, and how much else it had to do.

On a shared machine the wall clock shows the time slices of the neighbours, so costs are told in CPU time. The load is
told beside every result: a reader must know whether the machine was quiet.
"""

import os
import time
from pathlib import Path
from typing import Self

Figures = dict[str, float]
_TICKS = os.sysconf("SC_CLK_TCK")
_CLOCK_OF_PROCESS = 2
"""``CPUCLOCK_SCHED``: the kernel's own sum over all threads of a process, ended ones too, in nanoseconds."""


def cpu_s(pid: int) -> float:
    """CPU seconds that all threads of the process *pid* have used so far."""
    return time.clock_gettime(~pid << 3 | _CLOCK_OF_PROCESS)


def rss_mb(pid: int, *, peak: bool = False) -> float:
    """Memory that the process holds now, or its most so far, in MB (10⁶ bytes)."""
    key = "VmHWM:" if peak else "VmRSS:"
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(key)).split()[1]) * 1024 / 1e6


def _busy_s() -> float:
    user, nice, system, _, _, irq, softirq, *_ = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:])
    return (user + nice + system + irq + softirq) / _TICKS


class Machine:
    """``with Machine() as machine:`` around a measurement; ``machine.load`` is told beside its result."""

    def __enter__(self) -> Self:
        self._began = (time.monotonic(), _busy_s(), _own_s())
        return self

    def __exit__(self, *_: object) -> None:
        self.ended()

    def ended(self) -> Figures:
        """Cores, load average of the last minute, and the cores that others kept busy from begin to now.

        What children of ours used counts as ours once they have ended.
        """
        wall_s, busy_s, own_s = (now - then for now, then in zip(_now(), self._began, strict=True))
        self.load: Figures = {
            "cores": os.cpu_count() or 1,
            "load_average": round(os.getloadavg()[0], 2),
            "cores_busy": round(busy_s / max(wall_s, 0.01), 2),
            "cores_busy_elsewhere": round(max(0.0, busy_s - own_s) / max(wall_s, 0.01), 2),
        }
        return self.load


def _now() -> tuple[float, float, float]:
    return time.monotonic(), _busy_s(), _own_s()


def _own_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def quantile(values: list[float], part: float) -> float:
    """The value below which *part* of *values* lie; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else 0.0
