"""What was acknowledged outlives whatever happens."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_WRITER: Final = "collector/ragtrace_collector/store/sqlite.py"
_POWER_TESTS: Final = "tests/attack/test_power_loss.py"
_FILES: Final = "collector/ragtrace_collector/store/sqlite.py"
_KAFKA: Final = "collector/ragtrace_collector/receive/kafka.py"
_KAFKA_TESTS: Final = "tests/acceptance/test_kafka.py"

MUTANTS: Final = (
    Mutant(
        promise="durability",
        breaks="offsets are committed before the spans of their messages",
        file=_KAFKA,
        old="        self._note_read(consumer, messages)\n",
        new="        self._note_read(consumer, messages)\n        await self._call(consumer.commit, self._offsets())\n",
        tests=(f"{_KAFKA_TESTS}::test_a_collector_that_dies_around_a_commit_judges_all_once[behind]",),
        is_slow=True,
        hangs=True,
    ),
    Mutant(
        promise="durability",
        breaks="a second collector may open the store by another name",
        file=_FILES,
        old="        _lock_byte(descriptor)\n",
        new="        pass\n",
        tests=(
            "tests/attack/test_store_files.py::test_a_second_collector_process_ends_with_what_to_do[by_hard_link]",
        ),
    ),
    *(
        Mutant(
            promise="durability",
            breaks=f"commits are not synced (synchronous={mode})",
            file=_WRITER,
            old="PRAGMA synchronous=FULL",
            new=f"PRAGMA synchronous={mode}",
            tests=(f"{_POWER_TESTS}::test_a_state_folder_that_was_made_does_not_go_with_the_power",),
        )
        for mode in ("OFF", "NORMAL")
    ),
)
