"""What was acknowledged outlives whatever happens."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_WRITER: Final = "collector/ragtrace_collector/store/writer.py"
_FILES: Final = "collector/ragtrace_collector/store/files.py"
_LOST_WAL_TESTS: Final = "tests/attack/test_lost_wal.py"

MUTANTS: Final = (
    Mutant(
        promise="durability",
        breaks="what is written into a log that is gone is acknowledged",
        file=_FILES,
        old="        if not gone:\n",
        new="        if True:\n",
        tests=(f"{_LOST_WAL_TESTS}::test_nothing_is_acknowledged_into_a_log_that_is_gone",),
    ),
    Mutant(
        promise="durability",
        breaks="a second collector may open the store by another name",
        file=_FILES,
        old="        _lock_byte(descriptor)\n",
        new="        pass\n",
        tests=(
            "tests/attack/test_doubled_collectors.py::test_a_second_collector_process_ends_with_what_to_do[by_hard_link]",
        ),
    ),
    Mutant(
        promise="durability",
        breaks="spans are acknowledged and not stored",
        file="collector/ragtrace_collector/store/sqlite.py",
        old="                return await self._submit(work, is_acknowledged=True)\n",
        new="                _, held = self._submit(work, is_acknowledged=True).close(), frozenset[str]()\n"
        "                return held\n",
        tests=("tests/conformance/test_work_store.py::test_what_was_acknowledged_is_there_after_a_restart",),
    ),
)
