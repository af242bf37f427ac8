"""The ways in which things break. Each does its damage to a scene that is held at one step, and repairs it.

When a break returns, the environment is whole again, except that a process which was killed stays dead; that the
product recovers is for the test to see.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.e2e.installation import Replica
from tests.faults.lab import Lab
from tests.faults.proxy import Call, Hook

Break = Callable[[Lab, Replica, Hook], Awaitable[None]]

PAUSE_S = 60.0
OUTAGE_S = 5.0
LONG_OUTAGE_S = 20.0
STALL_S = 25.0
HICCUP_S = 6.0
SLOW_S = 20.0
DELAY_S = 1.0
WATCHFUL_S = 10.0
"""How long a leader that was paused is watched after it goes on."""


def is_ours(call: Call) -> bool:
    """Whether only the holder of the lease may send *call*: every write but those about lease and certificates."""
    housekeeping = ("/leases", "/secrets", "/validatingwebhookconfigurations/", "/mutatingwebhookconfigurations/")
    return call.is_write and not any(part in call.path for part in housekeeping)


async def killed(lab: Lab, leader: Replica, hook: Hook) -> None:
    """SIGKILL: what it was about to send is lost, the other takes over when the lease has run out."""
    await lab.process(leader).kill()
    hook.drop()
    await lab.leader(among=[lab.other(leader)])


async def terminated(lab: Lab, leader: Replica, hook: Hook) -> None:
    """SIGTERM: it finishes its writes, gives the lease back, and the other takes over."""
    stopping = asyncio.create_task(lab.process(leader).terminate(30))
    await asyncio.sleep(1)
    hook.pass_on()
    assert await stopping == 0
    await lab.leader(among=[lab.other(leader)])


async def paused(lab: Lab, leader: Replica, hook: Hook) -> None:
    """SIGSTOP for a minute, SIGCONT: by then the other leads, and the old one must not write a word."""
    other, proxy = lab.other(leader), lab.proxy(leader)
    process = lab.process(leader)
    process.pause()
    await asyncio.sleep(PAUSE_S)
    assert await lab.leads(other)
    before = len(proxy.calls)
    process.resume()
    await asyncio.sleep(1)  # time for it to hang up on what it waits for
    hook.pass_on()
    proxy.free_watches()
    await asyncio.sleep(WATCHFUL_S)
    written = [call for call in proxy.calls[before:] if is_ours(call)]
    assert [f"{call.method} {call.path}" for call in written] == []
    assert (await lab.leads(leader), await lab.leads(other)) == (False, True)


async def server_killed(lab: Lab, leader: Replica, hook: Hook) -> None:
    """The API server dies and is back after some seconds."""
    await _server_down(lab, hook, OUTAGE_S)


async def server_killed_for_long(lab: Lab, leader: Replica, hook: Hook) -> None:
    """The API server dies and stays away for longer than the lease lasts."""
    await _server_down(lab, hook, LONG_OUTAGE_S)


async def _server_down(lab: Lab, hook: Hook, seconds: float) -> None:
    server = lab.rig.component("kube-apiserver")
    await server.kill()
    hook.drop()
    await asyncio.sleep(seconds)
    await server.start()


async def server_restarted(lab: Lab, leader: Replica, hook: Hook) -> None:
    """The API server is told to end, ends, and is started again."""
    server = lab.rig.component("kube-apiserver")
    ending = asyncio.create_task(server.terminate(30))
    await asyncio.sleep(0.5)
    hook.pass_on()
    await ending
    await server.start()


async def etcd_killed(lab: Lab, leader: Replica, hook: Hook) -> None:
    """The store dies and is back after some seconds; the API server lives."""
    etcd = lab.rig.component("etcd")
    await etcd.kill()
    hook.pass_on()
    await asyncio.sleep(OUTAGE_S)
    await etcd.start()
    await lab.rig.component("kube-apiserver").wait_ready()


async def etcd_paused(lab: Lab, leader: Replica, hook: Hook) -> None:
    """The store hangs for longer than the lease lasts."""
    etcd = lab.rig.component("etcd")
    etcd.pause()
    hook.pass_on()
    await asyncio.sleep(LONG_OUTAGE_S)
    etcd.resume()
    await lab.rig.component("kube-apiserver").wait_ready()


async def cut(lab: Lab, leader: Replica, hook: Hook) -> None:
    """Every connection of the leader breaks at once."""
    lab.proxy(leader).cut()
    hook.drop()


async def hiccup(lab: Lab, leader: Replica, hook: Hook) -> None:
    """Nothing gets through from or to the leader, for less than its right to write lasts."""
    await _stalled(lab, leader, hook, HICCUP_S)


async def stalled(lab: Lab, leader: Replica, hook: Hook) -> None:
    """Nothing gets through from or to the leader until the other has taken over (half-open connections)."""
    await _stalled(lab, leader, hook, STALL_S)
    assert await lab.leads(lab.other(leader))


async def _stalled(lab: Lab, leader: Replica, hook: Hook, seconds: float) -> None:
    proxy = lab.proxy(leader)
    proxy.stall()
    hook.pass_on()
    await asyncio.sleep(seconds)
    proxy.flow()


async def slow(lab: Lab, leader: Replica, hook: Hook) -> None:
    """Every request of both replicas takes a second longer for a while."""
    for proxy in lab.proxies.values():
        proxy.delay_s = DELAY_S
    hook.pass_on()
    await asyncio.sleep(SLOW_S)
    for proxy in lab.proxies.values():
        proxy.delay_s = 0.0


async def both_killed(lab: Lab, leader: Replica, hook: Hook) -> None:
    """Both replicas die, and come back."""
    for replica in lab.replicas:
        await lab.process(replica).kill()
    hook.drop()
    for proxy in lab.proxies.values():
        proxy.heal()
    for replica in lab.replicas:
        await lab.process(replica).start()


BREAKS: dict[str, Break] = {
    "leader killed": killed,
    "leader terminated": terminated,
    "leader stopped 60 s": paused,
    "both replicas killed": both_killed,
    "API server killed 5 s": server_killed,
    "API server killed 20 s": server_killed_for_long,
    "API server restarted": server_restarted,
    "etcd killed 5 s": etcd_killed,
    "etcd hangs 20 s": etcd_paused,
    "connections cut": cut,
    "network stalls 6 s": hiccup,
    "network stalls 25 s": stalled,
    "network slow 20 s": slow,
}
