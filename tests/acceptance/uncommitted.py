"""``ragtrace``, of which offsets reach Kafka otherwise than they should.

    python uncommitted.py MODE collector --config FILE

``dies`` before its first commit, or ``dies-behind`` it when it is done.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping

from confluent_kafka import TopicPartition

from ragtrace.cli import main
from ragtrace_collector.receive.kafka import GroupConsumer, Partition


def commit(self: GroupConsumer, offsets: Mapping[Partition, int]) -> None:
    """Commit as the mode says."""
    if not offsets:
        return
    if MODE == "dies-behind":
        places = [TopicPartition(*place, offset) for place, offset in offsets.items()]
        self._consumer.commit(offsets=places, asynchronous=False)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    MODE = sys.argv.pop(1)
    GroupConsumer.commit = commit  # type: ignore[method-assign]
    main()
