"""``ragtrace``, of which no offset reaches Kafka: it dies at the first commit, or goes on without one.

python uncommitted.py dies|goes-on collector --config FILE
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping

from ragtrace.cli import main
from ragtrace_collector.receive._kafka_client import GroupConsumer, Partition


def lose(_: GroupConsumer, offsets: Mapping[Partition, int]) -> None:
    """Commit nothing; die if there was something."""
    if offsets and MODE == "dies":
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    MODE = sys.argv.pop(1)
    GroupConsumer.commit = lose  # type: ignore[method-assign]
    main()
