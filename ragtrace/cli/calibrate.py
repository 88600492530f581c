"""``ragtrace calibrate``: measure a judge against human labels."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Final

import click

from ragtrace.calibration.labeled_data import HumanLabel, LabeledAnswer, read_labeled
from ragtrace.calibration.measurement import JudgeCandidate, MeasuredAnswer, measure_all
from ragtrace.calibration.recommendation import recommended_calibration
from ragtrace.calibration.results import Results
from ragtrace.calibration.sampling import draw
from ragtrace.calibration.summary import MeasurementPlan, stratum_of, summarize
from ragtrace.calibration.wording import counted
from ragtrace.cli.extras import needs_extra
from ragtrace.cli.figures import print_results
from ragtrace.cli.options import JudgeChoice, concurrency_option, introduce, judge_options
from ragtrace.cli.reading import LeftOutRows, shown_path
from ragtrace.cli.script import INTERRUPTED
from ragtrace.cli.terminal import print_json, talk
from ragtrace.errors import InputError
from ragtrace.files.private import check_replaceable, replace_file
from ragtrace.judge import open_judge
from ragtrace.judge.lexical import claim_kind
from ragtrace.metrics.verify_settings import VerifyForm
from ragtrace.model import JudgeIdentity
from ragtrace.ports import Judge

_FORMS: Final = (VerifyForm.JSON, VerifyForm.LOGPROBS)
_EXAMPLES: Final = 50
_PROGRESS_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    answers: Sequence[LabeledAnswer]
    plan: MeasurementPlan


def _forms(context: click.Context, parameter: click.Parameter, value: str) -> tuple[VerifyForm, ...]:
    names = dict.fromkeys(name.strip() for name in value.split(",") if name.strip())
    if not names or not names.keys() <= set(_FORMS):
        raise click.BadParameter(f"choose from {', '.join(_FORMS)}, separated by commas")
    return tuple(VerifyForm(name) for name in names)


@click.command()
@click.argument("paths", metavar="DATA...", nargs=-1, required=True)
@judge_options
@click.option(
    "--forms",
    default="json",
    show_default=True,
    metavar="FORMS",
    callback=_forms,
    help="How claims are asked about: json (batches), logprobs (P(Yes), one claim a call), or json,logprobs"
    " to measure both.",
)
@click.option(
    "--limit", type=click.IntRange(min=1), metavar="N", help="Measure N answers of each file at most."
)
@click.option(
    "--runs",
    type=click.IntRange(1, 20),
    default=1,
    show_default=True,
    metavar="N",
    help="Judge N times, chunks and claims in another order each time: how often do verdicts flip?",
)
@click.option("--end-to-end", is_flag=True, help="Also judge whole answers, the claims worded by the judge.")
@click.option("--statements-only", is_flag=True, help="Leave out headings and remarks on sources.")
@click.option(
    "--floor/--no-floor", default=True, show_default=True, help="Measure the lexical judge beside it."
)
@click.option(
    "--group-by",
    metavar="FIELD",
    help="Rows with the same value here are about one document: intervals draw documents. --group-by id: each"
    " row its own.  [default: rows with the same contexts]",
)
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Of samples and orders.")
@click.option(
    "--resamples",
    type=click.IntRange(100, 100_000),
    default=1000,
    show_default=True,
    metavar="N",
    help="Bootstrap samples that intervals are drawn from.",
)
@concurrency_option
@click.option("--save", type=click.Path(dir_okay=False), metavar="FILE", help="Write what is recommended.")
@click.option(
    "--report", type=click.Path(dir_okay=False), metavar="FILE.html", help="Write a page with a plot."
)
@click.option("--with-examples", is_flag=True, help="Put claims that people see differently into the page.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def calibrate(
    paths: tuple[str, ...],
    judge: JudgeChoice,
    forms: tuple[VerifyForm, ...],
    limit: int | None,
    runs: int,
    end_to_end: bool,
    statements_only: bool,
    floor: bool,
    group_by: str | None,
    seed: int,
    resamples: int,
    concurrency: int,
    save: str | None,
    report: str | None,
    with_examples: bool,
    as_json: bool,
) -> None:
    """Measure a judge against human labels; - is standard input.

    A row of DATA is {"contexts": [...], "claims": [{"text", "label"}]} with the labels supported,
    contradicted, unsupported or null (left out), and as far as there are: "id", "question", "answer",
    "answer_label". The judge is shown contexts and claims, not the labels. Lines about the answer itself
    ("Here's a summary in 92 words:") are no claims, and are left out.

    Everything is checked before the first call: rows, labels of both kinds, and whether FILEs can be written.
    A row that cannot be read is left out, with a line on stderr; the exit code is then 2.

    Ctrl-C ends the run early and reports what was measured so far.

    \b
    Examples:
      ragtrace calibrate labelled.jsonl --judge openai:gpt-4o-mini \\
          --report report.html --save judge.json
      ragtrace calibrate labelled.jsonl --limit 50 --forms json,logprobs \\
          --judge openai:qwen2.5 --base-url http://localhost:11434/v1
      ragtrace calibrate labelled.jsonl --judge lexical
    """
    if with_examples and not report:
        raise click.UsageError("--with-examples needs --report: which page?")
    if report:
        with needs_extra("report"):
            import matplotlib as mpl  # noqa: F401  before hours of judging, not after
    for file in (save, report):
        if file:
            check_replaceable(Path(file))
    left_out = LeftOutRows()
    sample = _sample(
        paths,
        left_out,
        group_by=group_by,
        statements_only=statements_only,
        limit=limit,
        seed=seed,
        resamples=resamples,
        at_once=concurrency,
    )
    opened = judge.open(max_concurrency=concurrency)
    introduce(opened)
    candidates = _candidates(opened, forms, runs=runs, end_to_end=end_to_end, floor=floor)
    measured, interrupted = _measure(sample, candidates, opened, concurrency=concurrency, seed=seed)
    results = summarize(
        measured, candidates, sample.plan, lambda identity, usage: judge.prices.cost_usd(usage, identity)
    )
    if as_json:
        print_json(_as_json(results))
    else:
        print_results(results)
    if report:
        _write_page(Path(report), results, measured if with_examples else (), candidates)
    if save:
        _save(save, results, opened.identity)
    code = left_out.exit_code() or _exit_code(results)
    click.get_current_context().exit(INTERRUPTED if interrupted else code)


def _sample(
    paths: Sequence[str],
    notices: LeftOutRows,
    *,
    group_by: str | None,
    statements_only: bool,
    limit: int | None,
    seed: int,
    resamples: int,
    at_once: int,
) -> _Sample:
    names = Counter(Path(path).name for path in paths)
    left_out: Counter[str] = Counter()
    able: list[LabeledAnswer] = []
    chosen: list[LabeledAnswer] = []
    for path in paths:
        of_file: list[LabeledAnswer] = []
        for read in read_labeled(path, group_by=group_by, notices=notices):
            answer = replace(read, file=path) if names[read.file] > 1 else read
            left_out["claims without a label"] += answer.left_out
            left_out["lines about the answer itself"] += answer.announcements
            if statements_only:
                answer, dropped = _statements(answer)
                left_out["claims that state nothing"] += dropped
            if not answer.claims:
                left_out["answers without labelled claims"] += 1
            elif not any((chunk.text or "").strip() for chunk in answer.record.chunks):
                left_out["answers without contexts"] += 1
            else:
                of_file.append(answer)
        able += of_file
        chosen += draw(of_file, limit, seed=seed)
    _check_labels(able, paths, left_out)
    if group_by is not None and all(answer.document is None for answer in able):
        raise InputError(
            f"--group-by: no row of {', '.join(map(shown_path, paths))} has a field {group_by!r}"
        )
    _check_labels(chosen, paths, left_out, sampled=len(chosen) < len(able))
    random.Random(seed).shuffle(chosen)  # a run that is stopped has seen some of every file
    return _Sample(
        answers=chosen,
        plan=MeasurementPlan(
            population=Counter(map(stratum_of, able)),
            sampled=len(chosen) < len(able),
            left_out=dict(+left_out),
            resamples=resamples,
            seed=seed,
            at_once=max(1, min(at_once, len(chosen))),
        ),
    )


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
    if len(labels) == 2:
        return
    where = ", ".join(map(shown_path, paths))
    if not labels:
        why = ", ".join(f"{what} ({number})" for what, number in left_out.items() if number)
        raise InputError(f"there is no labelled claim in {where}" + (f"; left out: {why}" if why else ""))
    lacking = "unsupported" if True in labels else "supported"
    what = f"the sample of {where}" if sampled else where
    to_do = "draw more with --limit" if sampled else "label answers of both kinds"
    raise InputError(
        f"{what} has no claim that people call {lacking}: without both kinds nothing can be said about a"
        f" judge; {to_do}"
    )


def _statements(answer: LabeledAnswer) -> tuple[LabeledAnswer, int]:
    kept = [
        pair
        for pair in zip(answer.claims, answer.labels, strict=True)
        if claim_kind(pair[0].text) == "factual"
    ]
    claims = tuple(replace(claim, index=index) for index, (claim, _) in enumerate(kept))
    labels = tuple(label for _, label in kept)
    return replace(answer, claims=claims, labels=labels), len(answer.claims) - len(kept)


def _candidates(
    judge: Judge, forms: Sequence[VerifyForm], *, runs: int, end_to_end: bool, floor: bool
) -> list[JudgeCandidate]:
    is_floor = judge.identity.provider == "lexical"
    found = [JudgeCandidate(judge=judge, form=form, runs=runs, end_to_end=end_to_end) for form in forms]
    if floor and not is_floor:
        lexical = open_judge("lexical")
        found.append(
            JudgeCandidate(judge=lexical, form=VerifyForm.JSON, end_to_end=end_to_end, is_floor=True)
        )
    return found


def _measure(
    sample: _Sample, candidates: Sequence[JudgeCandidate], judge: Judge, *, concurrency: int, seed: int
) -> tuple[list[MeasuredAnswer], bool]:
    """Return what was measured, and whether somebody stopped it."""
    measured: list[MeasuredAnswer] = []
    whole = len(sample.answers)
    claims = sum(len(answer.claims) for answer in sample.answers)
    talk(f"measuring {counted(whole, 'answer')} with {counted(claims, 'labelled claim')}")

    progress = _Progress(whole)

    def done(each: MeasuredAnswer) -> None:
        measured.append(each)
        progress.show(len(measured))

    async def measure() -> None:
        async with AsyncExitStack() as stack:
            for candidate in candidates:
                await stack.enter_async_context(aclosing(candidate.judge))
            await measure_all(sample.answers, candidates, concurrency=concurrency, seed=seed, done=done)

    try:
        asyncio.run(measure())
    except KeyboardInterrupt:
        talk(f"interrupted: the figures are about the {len(measured):,} of {counted(whole, 'answer')} so far")
        return measured, True
    return measured, False


class _Progress:
    """Says now and then how far a run is, and how long the rest may take."""

    def __init__(self, whole: int) -> None:
        self._whole = whole
        self._started = self._said = time.monotonic()

    def show(self, number: int) -> None:
        now = time.monotonic()
        if number < self._whole and now - self._said < _PROGRESS_S:
            return
        self._said = now
        left = (now - self._started) / number * (self._whole - number)
        rest = f", about {timedelta(seconds=round(left))} left" if number < self._whole else ""
        talk(f"  {number:,} of {counted(self._whole, 'answer')}{rest}")


def _as_json(results: Results) -> Mapping[str, object]:
    chosen = results.recommended
    recommended = chosen and {
        "name": chosen.name,
        "form": chosen.form,
        "threshold": chosen.claim_cut.recommended if chosen.claim_cut else None,
        "answer_threshold": chosen.answer_threshold,
    }
    return {**asdict(results), "recommended": recommended}


def _write_page(
    path: Path, results: Results, measured: Sequence[MeasuredAnswer], candidates: Sequence[JudgeCandidate]
) -> None:
    from ragtrace.calibration.page import disagreements, render_page
    from ragtrace.calibration.plot import draw_plot

    page = render_page(results, draw_plot(results), disagreements(measured, candidates, at_most=_EXAMPLES))
    replace_file(path, page)
    talk(f"report: {path}")


def _save(path: str, results: Results, identity: JudgeIdentity) -> None:
    calibration = recommended_calibration(results, identity)
    if calibration is None:
        talk("nothing is saved: nothing follows from what was measured")
        return
    calibration.write(path)
    talk(f"saved: {path}")


def _exit_code(results: Results) -> int:
    """Return 1 where runs failed: the figures leave them out."""
    return int(any(candidate.failures for candidate in results.overall.candidates))
