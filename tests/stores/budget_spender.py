"""A process that spends from a budget until nothing is left: ``budget_spender BROKER TOPIC LIMIT``.

It says ``open``, then the number of each request that was granted, then ``end``.
"""

from __future__ import annotations

import asyncio
import random
import sys
from typing import Final

from ragtrace.budget import Budget, BudgetUnavailable, ExceededLimit, Limit, Period, Reservation, Spend
from ragtrace_collector.store.budget_log.kafka import kafka_budget

NOON: Final = 1_772_193_630 * 1_000_000_000
AT_ONCE: Final = 8


def shared_budget(limit: int) -> Budget:
    return Budget(name="live", limits={Period.DAY: Limit(calls=limit, tokens=100 * limit)})


async def spend(broker: str, topic: str, limit: int) -> None:
    budget = kafka_budget({"bootstrap.servers": broker}, topic, client="spender", checkpoint_every=50)
    await budget.open()
    print("open", flush=True)
    granted = 0

    async def work() -> None:
        nonlocal granted
        while True:
            estimate = Spend(calls=1, tokens=100)
            try:
                answer = await budget.reserve(shared_budget(limit), estimate, now_ns=NOON)
            except BudgetUnavailable:
                continue
            if isinstance(answer, ExceededLimit):
                return
            assert isinstance(answer, Reservation)
            granted += 1
            print(granted, flush=True)
            await budget.settle(answer, Spend(calls=1, tokens=random.randint(0, 100)))

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    await budget.aclose()
    print("end", flush=True)


if __name__ == "__main__":
    asyncio.run(spend(sys.argv[1], sys.argv[2], int(sys.argv[3])))
