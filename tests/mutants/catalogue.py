"""All mutants: one promise each, broken on purpose, and the tests that must notice."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final


class DoesNotApply(Exception):
    """The text that a mutant replaces does not stand in its file, once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A small change to the product, after which a named test must fail."""

    promise: str
    breaks: str
    file: str
    """What it changes, from the root of the checkout."""
    old: str
    """A text that stands there once."""
    new: str
    test: str
    """What must fail, as pytest takes it."""

    def applied_to(self, root: Path) -> str:
        """Return the file's text with the change.

        Raises:
            DoesNotApply: the product has changed since the mutant was written.
        """
        text = (root / self.file).read_text("utf-8")
        if (number := text.count(self.old)) != 1:
            raise DoesNotApply(
                f"{self.breaks!r}: its text stands {number} times in {self.file}: {self.old!r}"
            )
        return text.replace(self.old, self.new)


CATALOGUE: Final = (
    Mutant(
        promise="scores",
        breaks="where nothing was judged the score is 0",
        file="ragtrace/scoring/formulas.py",
        old="return part / whole if whole else None",
        new="return part / whole if whole else 0.0",
        test="tests/unit/scoring/test_rules.py::test_where_nothing_was_judged_there_is_no_reading",
    ),
    Mutant(
        promise="evidence",
        breaks="a quote is believed, wherever it comes from",
        file="ragtrace/metrics/_evidence.py",
        old="        return None if found is None else self._text[found]",
        new="        return bare if found is None else self._text[found]",
        test="tests/unit/metrics/test_evidence.py::test_what_is_not_in_the_chunk_is_no_quote",
    ),
    Mutant(
        promise="order",
        breaks="an answer that is settled again is queued again",
        file="collector/ragtrace_collector/store/store.py",
        old='" ON CONFLICT (trace_id, span_id) DO NOTHING"',
        new="\" ON CONFLICT (trace_id, span_id) DO UPDATE SET state = 'queued'\"",
        test="tests/conformance/test_work_store.py::test_a_finished_job_is_not_queued_again",
    ),
    Mutant(
        promise="crash",
        breaks="what a killed process had leased is never leased again",
        file="collector/ragtrace_collector/store/jobs.py",
        old="crashes = crashes + ? WHERE state = 'leased'",
        new="crashes = crashes + ? WHERE state = 'lost'",
        test="tests/conformance/test_work_store.py::test_a_lease_ends_with_the_process",
    ),
    Mutant(
        promise="crash",
        breaks="commits are not synced",
        file="collector/ragtrace_collector/store/sqlite.py",
        old="PRAGMA synchronous=FULL",
        new="PRAGMA synchronous=NORMAL",
        test="tests/attack/test_power_loss.py::test_what_was_acknowledged_outlives_a_power_loss_and_is_judged_once",
    ),
    Mutant(
        promise="budget",
        breaks="a request is let through that would exceed a limit",
        file="ragtrace/budget/reserve.py",
        old="exceeded_by(before + estimate))",
        new="exceeded_by(before))",
        test="tests/conformance/test_store_budget.py"
        "::test_a_request_beyond_a_limit_is_refused_until_its_window_ends",
    ),
    Mutant(
        promise="sampling",
        breaks="each process draws its own answers",
        file="ragtrace/sampling.py",
        old='    digest = hashlib.sha256(f"ragtrace|{trace_id}".encode()).digest()\n',
        new='    digest = hashlib.sha256(f"{hash(trace_id)}".encode()).digest()\n',
        test="tests/unit/collector/test_sampling.py::test_every_process_and_version_draws_the_same_answers",
    ),
    Mutant(
        promise="privacy",
        breaks="an attribute is written without the policy",
        file="ragtrace/capture/privacy/policy.py",
        old="                if (named := self.identifier(value)) is not None:\n"
        "                    written[key] = named\n",
        new="                written[key] = value\n",
        test="tests/unit/capture/test_every_place.py::test_nothing_personal_is_written",
    ),
    Mutant(
        promise="tenants",
        breaks="traces are known by their ids alone, whoever sends",
        file="collector/ragtrace_collector/store/records.py",
        old='return f"{trace_id}{BEHIND_ID}{tenant}" if tenant else trace_id',
        new="return trace_id",
        test="tests/attack/test_tenants.py::test_spans_of_two_tenants_under_one_trace_id_are_kept_apart",
    ),
    Mutant(
        promise="delivery",
        breaks="a partial success is taken for a whole one",
        file="ragtrace/backends/otlp_sinks.py",
        old="    if rejected:\n",
        new="    if False:\n",
        test="tests/attack/test_partial_success.py"
        "::test_every_verdict_that_a_back_end_refused_is_told_kept_and_counted",
    ),
    Mutant(
        promise="back-fill",
        breaks="two runs over one progress file both pay",
        file="ragtrace/backfill/progress.py",
        old='("locking_mode = EXCLUSIVE",)',
        new="()",
        test="tests/integration/cli/test_backfill.py"
        "::test_a_second_run_over_one_progress_file_pays_for_nothing",
    ),
    Mutant(
        promise="reading",
        breaks="retrieved documents of OpenInference are not read",
        file="ragtrace/traces/extract/conventions.py",
        old='        "retrieval.documents.*.document",\n        "output.value.documents",\n',
        new="",
        test="tests/reading/test_reading.py",
    ),
)
