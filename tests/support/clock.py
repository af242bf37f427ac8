"""A clock that moves when told, and sleeping that moves it."""

import asyncio


class FakeClock:
    """Call it for the time; ``sleep`` returns at once, with the time moved on."""

    def __init__(self, now_s: float = 1000.0) -> None:
        self.now_s = now_s
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now_s

    def forward(self, seconds: float) -> None:
        """Let *seconds* pass."""
        self.now_s += seconds

    async def sleep(self, seconds: float) -> None:
        """Let *seconds* pass, and others run."""
        self.slept.append(seconds)
        self.now_s += seconds
        await asyncio.sleep(0)
