"""What was acknowledged outlives whatever happens."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_WRITER: Final = "collector/ragtrace_collector/store/sqlite.py"
_SINK: Final = "ragtrace/backends/otlp_file.py"
_POWER_TESTS: Final = "tests/attack/test_power_loss.py"
_FILES: Final = "collector/ragtrace_collector/store/_files.py"
_LOST_WAL_TESTS: Final = "tests/attack/test_lost_wal.py"
_UNFORESEEN: Final = (
    "tests/attack/test_unforeseen_errors.py::test_what_was_acknowledged_is_there_whatever_a_commit_fails_with"
)
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
        breaks="offsets are committed of messages that wait for room",
        file=_KAFKA,
        old="        return {**self._next, **first_waiting}\n",
        new="        return self._next\n",
        tests=(f"{_KAFKA_TESTS}::test_a_full_store_pauses_reading_and_nothing_is_lost_even_if_it_dies",),
        is_slow=True,
        hangs=True,
    ),
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
        file="collector/ragtrace_collector/store/store.py",
        old="                return await self._commits.submit(work, is_acknowledged=True, traces=ids)\n",
        new="                _, held = self._commits.submit(work, is_acknowledged=True).close(), frozenset[str]()\n"
        "                return held\n",
        tests=("tests/conformance/test_work_store.py::test_what_was_acknowledged_is_there_after_a_restart",),
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
    Mutant(
        promise="durability",
        breaks="spans are acknowledged before the commit",
        file=_WRITER,
        old='        connection.execute("COMMIT")\n',
        new="        self._resolve(list(zip((each.future for each in group), results)))\n"
        '        __import__("time").sleep(0.05)\n'
        '        connection.execute("COMMIT")\n',
        tests=(f"{_POWER_TESTS}::test_whatever_the_power_fails_in_nothing_that_was_told_is_gone",),
    ),
    Mutant(
        promise="durability",
        breaks="a failure to undo what failed ends the store's thread",
        file=_WRITER,
        old="    with suppress(BaseException):  # then",
        new="    with suppress(sqlite3.Error):  # then",
        tests=(_UNFORESEEN,),
        is_slow=True,
        hangs=True,
    ),
    Mutant(
        promise="durability",
        breaks="an unforeseen failure to keep spans is answered as one for good",
        file="collector/ragtrace_collector/receive/intake.py",
        old="            if isinstance(exc, StoreUnavailable):\n",
        new="            if True:\n",
        tests=(_UNFORESEEN,),
    ),
    Mutant(
        promise="durability",
        breaks="a file of carriers is not synced",
        file=_SINK,
        old="            file.write(line)\n            file.flush()\n            os.fsync(file.fileno())\n",
        new="            file.write(line)\n",
        tests=(f"{_POWER_TESTS}::test_whenever_a_process_is_killed_the_next_one_syncs_what_it_left",),
    ),
    Mutant(
        promise="durability",
        breaks="the name of a file of carriers is not synced",
        file=_SINK,
        old="    sync_folder(path.parent)  #",
        new="    #",
        tests=(f"{_POWER_TESTS}::test_whenever_a_process_is_killed_the_next_one_syncs_what_it_left",),
    ),
    Mutant(
        promise="durability",
        breaks="folders that are made are not synced",
        file="ragtrace/files/durable.py",
        old="        sync_folder(each.parent)\n",
        new="",
        tests=(f"{_POWER_TESTS}::test_a_state_folder_that_was_made_does_not_go_with_the_power",),
    ),
    Mutant(
        promise="durability",
        breaks="a folder that a killed process made is taken for safe",
        file="ragtrace/files/durable.py",
        old="    sync_folder(lowest.parent)  # its",
        new="    # who",
        tests=(f"{_POWER_TESTS}::test_whenever_a_process_is_killed_the_next_one_syncs_what_it_left",),
    ),
    Mutant(
        promise="durability",
        breaks="rows of a report are not synced",
        file="ragtrace/reports/_files.py",
        old="            os.fsync(self._descriptor)\n",
        new="",
        tests=(f"{_POWER_TESTS}::test_a_report_that_was_written_outlives_a_power_loss[rows.jsonl]",),
    ),
    Mutant(
        promise="durability",
        breaks="the name of a report is not synced",
        file="ragtrace/reports/_files.py",
        old="            sync_folder(self.path.parent)\n",
        new="",
        tests=(f"{_POWER_TESTS}::test_a_report_that_was_written_outlives_a_power_loss[rows.jsonl]",),
    ),
    Mutant(
        promise="durability",
        breaks="what a killed process wrote into a file of carriers is taken for safe",
        file=_SINK,
        old="        file.flush()\n        os.fsync(file.fileno())  # a killed",
        new="        file.flush()  # what a killed",
        tests=(
            f"{_POWER_TESTS}::test_what_a_killed_process_had_written_is_synced_before_it_counts_as_there",
        ),
    ),
    Mutant(
        promise="durability",
        breaks="a backup's name is not synced",
        file="ragtrace/files/private.py",
        old="        sync_folder(self.path.parent)\n",
        new="",
        tests=(f"{_POWER_TESTS}::test_a_backup_that_was_told_of_outlives_a_power_loss",),
    ),
)
