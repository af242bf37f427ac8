"""The watchdog of the event loop: what it says of a loop that was held up, and that it says it once."""

import asyncio
import time

from extender.telemetry import WATCHDOG_S, Watchdog

HELD_S = 0.05


async def watched(hold):
    """What the watchdog says after *hold* had the loop for a while, and right after that."""
    watchdog = Watchdog()
    task = asyncio.create_task(watchdog.run())
    await asyncio.sleep(2 * WATCHDOG_S)
    watchdog.lag_s(), watchdog.held_s()
    hold()
    for _ in range(5):  # rounds of the loop in which the watchdog, which is overdue, wakes up
        await asyncio.sleep(0)
    said = watchdog.lag_s(), watchdog.held_s()
    task.cancel()
    return said, (watchdog.lag_s(), watchdog.held_s())


def work():
    until = time.thread_time() + HELD_S
    while time.thread_time() < until:
        pass


async def test_work_that_holds_the_loop_is_told_once_as_delay_and_as_our_own():
    (lag_s, held_s), again = await watched(work)

    assert lag_s >= HELD_S - WATCHDOG_S
    assert HELD_S - WATCHDOG_S <= held_s <= lag_s + WATCHDOG_S
    assert again == (0.0, 0.0)


async def test_time_in_which_the_thread_did_not_run_is_delay_but_not_our_own():
    (lag_s, held_s), _ = await watched(lambda: time.sleep(HELD_S))

    assert lag_s >= HELD_S - WATCHDOG_S
    assert held_s < HELD_S / 2
