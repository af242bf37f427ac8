"""Become another program that dies with its parent.

Run as `python -I -S guard.py <parent pid> program arguments…`. The kernel is asked to send SIGKILL when the
parent thread ends, whatever ends it, and then this process becomes the program: same process id, no wrapper
left. A process started by a rig therefore cannot outlive it, not even when the rig is killed with SIGKILL.
A small program of its own instead of a hook between fork and exec, since such hooks can deadlock when the
parent has threads. Elsewhere than on Linux the guard only starts the program.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Set the parent-death signal, make sure the parent still lives, become the program."""
    parent, program, *arguments = sys.argv[1:]
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            sys.exit(f"guard: prctl: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != int(parent):
        sys.exit("guard: the parent is gone")  # it died before the signal was set
    os.execvp(program, [program, *arguments])


if __name__ == "__main__":
    main()
