"""Which tests run on one worker, as what they share takes long to make; others go to whichever is free."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from xdist.scheduler import LoadScopeScheduling

ROOT: Final = Path(__file__).parents[1]

TOGETHER: Final = {
    "tests/acceptance/test_backfill_phoenix.py": "phoenix",
    "tests/acceptance/test_core_install.py": "core install",
    "tests/acceptance/test_crash.py": "crash",
    "tests/acceptance/test_frameworks.py": "frameworks",
    "tests/acceptance/test_kafka.py": "kafka",
    "tests/architecture/test_names.py": "syntax trees",
    "tests/architecture/test_totals.py": "syntax trees",
    "tests/browser/test_keyboard.py": "browser keyboard",
    "tests/browser/test_screens.py": "browser screens",
    "tests/deploy/test_quality_dashboards.py": "quality dashboards",
    "tests/docs/test_blocks.py": "reader",
    "tests/docs/test_examples.py": "reader",
    "tests/integration/capture/test_servers.py": "servers",
    "tests/integration/metrics/test_injections.py": "injections",
    "tests/integration/test_phoenix.py": "phoenix",
    "tests/unit/test_package.py": "wheel",
}
"""Modules, and what they share."""


class BySharing(LoadScopeScheduling):
    """Gives a free worker the next test, or all that share something, in the order of the collection."""

    # xdist's own `loadgroup` writes its groups into the names of tests, which pytest 9.2 does not read there.

    def _split_scope(self, nodeid: str) -> str:
        return TOGETHER.get(nodeid.partition("::")[0], nodeid)
