"""One run of `ragtrace calibrate`: measures judges, and shows the figures in 80 columns."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

import click

from ragtrace import process
from ragtrace.budget import load_prices
from ragtrace.calibration.measurement import JudgeCandidate, MeasuredAnswer, draw, measure_all
from ragtrace.calibration.page import (
    basis,
    counted,
    digest_of,
    disagreements,
    floor_leads,
    interval,
    judge_card,
    money,
    percent,
    recommendations,
    recommended_calibration,
    render_page,
    risk_limits,
)
from ragtrace.calibration.summary import (
    AgreementLevel,
    CandidateResult,
    MeasurementPlan,
    Results,
    stratum_of,
    summarize,
)
from ragtrace.cli import INTERRUPTED
from ragtrace.cli.calibrate import CalibrateOutput, MeasureOptions, SampleOptions
from ragtrace.cli.judging import LeftOutRows, introduce, shown_path
from ragtrace.cli.render import by_kind, one_line, open_console, print_indented, print_json, talk
from ragtrace.errors import InputError
from ragtrace.files import check_replaceable, replace_file
from ragtrace.judge import open_judge
from ragtrace.judge.lexical import WordShareJudge
from ragtrace.labeled_data import HumanLabel, LabeledAnswer, read_labeled
from ragtrace.metrics.judge_card import IntervalEstimate
from ragtrace.metrics.settings import VerifyForm
from ragtrace.model import JudgeIdentity
from ragtrace.ports import Judge

_EXAMPLES: Final = 50
_PROGRESS_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    answers: Sequence[LabeledAnswer]
    plan: MeasurementPlan


def run_calibration(
    paths: Sequence[str], wanted: SampleOptions, measure: MeasureOptions, output: CalibrateOutput
) -> int:
    """Measure, print and write what was found, and return the exit code.

    Raises:
        InputError: the data says nothing about a judge.
        ConfigError: an option is wrong, or a file cannot be written.
    """
    concurrency = measure.concurrency
    spec = measure.judge.evaluator(max_concurrency=concurrency, only=("judge",)).spec
    prices = load_prices(spec.prices)
    for file in output.files:
        check_replaceable(file)
    left_out = LeftOutRows()
    sample = _sample(paths, left_out, wanted, at_once=concurrency)
    of_criteria = sample.answers[0].of_criteria
    if of_criteria:
        _check_options_of_criteria(measure, output)
    opened = spec.judge.open()
    introduce(opened)
    candidates = _candidates(opened, measure, of_criteria=of_criteria)
    measured, interrupted = _measure(sample, candidates, concurrency=concurrency, seed=wanted.seed)
    results = summarize(
        measured, candidates, sample.plan, lambda identity, usage: prices.cost_usd(usage, identity)
    )
    if output.json.wanted:
        chosen = results.recommended
        recommended = chosen and {
            "name": chosen.name,
            "form": chosen.form,
            "threshold": chosen.claim_cut.recommended if chosen.claim_cut else None,
            "answer_threshold": chosen.answer_threshold,
        }
        print_json({**asdict(results), "recommended": recommended})
    else:
        print_results(results, of_criteria=of_criteria)
    if output.report:
        shown = measured if output.with_examples else ()
        page = render_page(
            results, disagreements(shown, candidates, at_most=_EXAMPLES), of_criteria=of_criteria
        )
        replace_file(Path(output.report), page)
        talk(f"report: {output.report}")
    if output.card:
        digests = {shown_path(path): digest_of(path) for path in paths}
        judge_card(results, opened.identity, digests).write(output.card)
        talk(f"card: {output.card}")
    if output.save:
        _save(output.save, results, opened.identity)
    failed = any(candidate.failures for candidate in results.overall.candidates)  # the figures leave them out
    code = left_out.exit_code() or int(failed)
    return INTERRUPTED if interrupted else code


def _sample(paths: Sequence[str], notices: LeftOutRows, wanted: SampleOptions, *, at_once: int) -> _Sample:
    left_out: Counter[str] = Counter()
    able: list[LabeledAnswer] = []
    chosen: list[LabeledAnswer] = []
    for path in paths:
        read = _answers_of(path, paths, notices, wanted, left_out)
        of_file = [answer for answer in read if _is_usable(answer, left_out)]
        able += of_file
        chosen += draw(of_file, wanted.limit, seed=wanted.seed)
    _check_labels(able, paths, left_out)
    if wanted.group_by is not None and all(answer.document is None for answer in able):
        where = ", ".join(map(shown_path, paths))
        raise InputError(f"--group-by: no row of {where} has a field {wanted.group_by!r}")
    _check_labels(chosen, paths, left_out, sampled=len(chosen) < len(able))
    random.Random(wanted.seed).shuffle(chosen)  # a run that is stopped has seen some of every file
    return _Sample(
        answers=chosen,
        plan=MeasurementPlan(
            population=Counter(map(stratum_of, able)),
            sampled=len(chosen) < len(able),
            left_out=dict(+left_out),
            seed=wanted.seed,
            at_once=max(1, min(at_once, len(chosen))),
        ),
    )


def _answers_of(
    path: str, paths: Sequence[str], notices: LeftOutRows, wanted: SampleOptions, left_out: Counter[str]
) -> Iterator[LabeledAnswer]:
    """Yield the answers of a file, and count the claims that are left out of them."""
    names = Counter(Path(each).name for each in paths)
    for read in read_labeled(path, group_by=wanted.group_by, notices=notices):
        answer = replace(read, file=path) if names[read.file] > 1 else read
        left_out["claims without a label"] += answer.left_out
        left_out["lines about the answer itself"] += answer.announcements
        yield answer


def _is_usable(answer: LabeledAnswer, left_out: Counter[str]) -> bool:
    if not answer.claims:
        left_out["answers without labeled claims"] += 1
        return False
    if not answer.of_criteria and not any((chunk.text or "").strip() for chunk in answer.record.chunks):
        left_out["answers without contexts"] += 1
        return False
    return True


def _check_labels(
    answers: Sequence[LabeledAnswer],
    paths: Sequence[str],
    left_out: Mapping[str, int],
    sampled: bool = False,
) -> None:
    """Raise before anything is paid for if nothing can be said about a judge.

    Raises:
        InputError: there is no claim that people call supported, or none that they call unsupported.
    """
    labels = {label is HumanLabel.SUPPORTED for answer in answers for label in answer.labels}
    if len({answer.of_criteria for answer in answers}) == 2:
        raise InputError("some rows label claims and some criteria: calibrate them one after the other")
    if len(labels) == 2:
        return
    where = ", ".join(map(shown_path, paths))
    if not labels:
        why = ", ".join(f"{what} ({number})" for what, number in left_out.items() if number)
        raise InputError(f"there is no labeled claim in {where}" + (f"; left out: {why}" if why else ""))
    lacking = "unsupported" if True in labels else "supported"
    what = f"the sample of {where}" if sampled else where
    to_do = "draw more with --limit" if sampled else "label answers of both kinds"
    raise InputError(
        f"{what} has no claim that people call {lacking}: without both kinds nothing can be said about a"
        f" judge; {to_do}"
    )


def _check_options_of_criteria(measure: MeasureOptions, output: CalibrateOutput) -> None:
    """Refuse what is about claims: a card or settings would say nothing true of the judge's verdicts on them.

    Raises:
        UsageError: such an option was given.
    """
    given = {
        "--save": output.save,
        "--card": output.card,
        "--end-to-end": measure.end_to_end,
        "--forms": "logprobs" in measure.forms,
    }
    if wrong := next((name for name, value in given.items() if value), None):
        raise click.UsageError(f"{wrong} is about claims, and these rows label criteria: leave it out")


def _candidates(judge: Judge, measure: MeasureOptions, *, of_criteria: bool) -> list[JudgeCandidate]:
    whole = measure.end_to_end
    found = [
        JudgeCandidate(judge=judge, form=VerifyForm(form), runs=measure.runs, end_to_end=whole)
        for form in measure.forms
    ]
    if not of_criteria:  # comparing words tells nothing about a criterion
        if judge.identity.provider != "lexical":
            lexical = open_judge("lexical")
            found.append(JudgeCandidate(judge=lexical, form=VerifyForm.JSON, end_to_end=whole, is_floor=True))
        found.append(JudgeCandidate(judge=WordShareJudge(), form=VerifyForm.JSON, is_floor=True))
    return found


def _measure(
    sample: _Sample, candidates: Sequence[JudgeCandidate], *, concurrency: int, seed: int
) -> tuple[list[MeasuredAnswer], bool]:
    """Return what was measured, and whether somebody stopped it."""
    measured: list[MeasuredAnswer] = []
    whole = len(sample.answers)
    things = sum(len(answer.claims) for answer in sample.answers)
    what = "labeled verdict" if sample.answers[0].of_criteria else "labeled claim"
    talk(f"measuring {counted(whole, 'answer')} with {counted(things, what)}")

    said = time.monotonic()

    def done(each: MeasuredAnswer) -> None:
        nonlocal said
        measured.append(each)
        if len(measured) == whole or time.monotonic() - said > _PROGRESS_S:
            said = time.monotonic()
            talk(f"  {len(measured):,} of {counted(whole, 'answer')}")

    async def measure() -> None:
        async with AsyncExitStack() as stack:
            for candidate in candidates:
                await stack.enter_async_context(aclosing(candidate.judge))
            await measure_all(sample.answers, candidates, concurrency=concurrency, seed=seed, done=done)

    try:
        process.run(measure())
    except KeyboardInterrupt:
        talk(f"interrupted: the figures are about the {len(measured):,} of {counted(whole, 'answer')} so far")
        return measured, True
    return measured, False


def _save(path: str, results: Results, identity: JudgeIdentity) -> None:
    calibration = recommended_calibration(results, identity)
    if calibration is None:
        talk("nothing is saved: the measurements support no recommendation")
        return
    calibration.write(path)
    talk(f"saved: {path}")


_WIDTHS = (16, 9, 19, 19, 8, 9)
_HEAD = ("", "decided", "balanced accuracy", "of the decided", "kappa", "AUC")


def print_results(results: Results, *, of_criteria: bool) -> None:
    """Print the results, by file and together, and for claims the recommendations."""
    console = open_console()
    for group in results.groups:
        title = f"{group.name}: {group.answers:,} of {counted(group.of_answers, 'answer')}"
        console.print(one_line(title), style="bold", soft_wrap=True)
        console.print(_columns(*_HEAD), style="dim", soft_wrap=True)
        for candidate in group.candidates:
            console.print(f"  {one_line(candidate.name)}{_kind(candidate)}")
            for line in _lines(candidate, of_criteria=of_criteria):
                console.print(line, soft_wrap=True)
        for compared, found in floor_leads(group):
            console.print(f"  {one_line(compared)}", soft_wrap=True)
            print_indented(console, 4, found)
        console.print()
    for line in basis(results, of_criteria=of_criteria):
        print_indented(console, 0, line)
    if of_criteria:
        return
    console.print()
    console.print("What follows", style="bold")
    for line in recommendations(results):
        print_indented(console, 2, line)


def _kind(candidate: CandidateResult) -> str:
    if not candidate.is_floor:
        return ""
    return " (the judge without a key)" if candidate.name.startswith("lexical:") else " (the floor)"


def _lines(candidate: CandidateResult, *, of_criteria: bool) -> Iterator[str]:
    if of_criteria:
        yield from _level("verdict", candidate.claims, wrong="not met")
    else:
        yield from _level("claim", candidate.claims)
        yield from _level("answer", candidate.answers)
        passed = {human: row.get("supported", 0) for human, row in candidate.answers.confusion.items()}
        if of := sum(passed.values()):
            missed = f"{passed.get('unsupported', 0):,} are flawed"
            yield f"      of {counted(of, 'answer')} that pass, {missed}"
    if candidate.calibration_error is not None:
        yield f"    calibration error of the probability {candidate.calibration_error:.2f}"
        if candidate.risk_coverage_area is not None:
            yield f"    area under risk by coverage (AURC) {interval(candidate.risk_coverage_area)}"
        if candidate.risk_limits:
            yield f"    can decide {risk_limits(candidate)}"
    if candidate.end_to_end is not None:
        yield f"    end to end, the claims worded by {one_line(candidate.name)}"
        yield from _level("answer", candidate.end_to_end)
    usage = candidate.usage
    effort = f"{counted(usage.calls, 'call')}, {counted(usage.input_tokens + usage.output_tokens, 'token')}"
    yield f"    {effort}, cost {money(candidate.cost)}, {candidate.seconds_an_answer:.3g} s an answer"
    if candidate.runs > 1:
        yield f"    {percent(candidate.flips)} of the verdicts are not the same in {candidate.runs} runs"
    for what, counts in (("failed", candidate.failures), ("skipped", candidate.skipped)):
        if counts:
            yield f"    {what}  {by_kind(counts)}"


def _level(name: str, level: AgreementLevel, *, wrong: str = "unsupported") -> Iterator[str]:
    yield _columns(
        counted(level.things, name),
        percent(level.decided),
        interval(level.two_way),
        interval(level.balanced_accuracy),
        _point(level.kappa),
        _point(level.auc),
    )
    if level.unsupported:
        found = f"found {level.caught:,} of {level.unsupported:,} {wrong}"
        yield f"      {found}: recall {interval(level.recall)}"
        of_decided = f"of the decided {interval(level.recall_of_decided)}"
        yield f"        ({of_decided}); precision {interval(level.precision)}"


def _columns(*cells: str) -> str:
    return ("    " + "".join(cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True))).rstrip()


def _point(estimate: IntervalEstimate | None) -> str:
    return "-" if estimate is None else f"{estimate.value:.2f}"
