"""A criterion of one's own in one line: whether the answer meets it, yes or no."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping
from typing import Final

from ragtrace.errors import ConfigError, JudgeUnable
from ragtrace.metrics.base import BuiltInMetric, MetricFinding, readings
from ragtrace.metrics.session import StepSession
from ragtrace.metrics.settings import PromptSource
from ragtrace.model import Part, RagRecord, SkipReason, VerdictLabel

_MOST_CHARS: Final = 500
_MOST_NAME_CHARS: Final = 40


class Criterion(BuiltInMetric):
    """Measures whether the answer meets a criterion, such as "The answer names the next step".

    score = 1 if it does, else 0. The judge sees the question and the answer, not the chunks. All criteria of
    an evaluation share one request. The verdict has the judge's reason, and a quote if it is in the answer.

    Details: ``quotes_unverified``: 1 if the judge's quote was not found in the answer or there is none.
    """

    needs = (Part.ANSWER,)
    uses = ("criteria",)
    good, wrong = VerdictLabel.MET, VerdictLabel.NOT_MET

    def __init__(
        self,
        *,
        name: str,
        criterion: str,
        threshold: float | None = None,
        pass_when: str | None = None,
        judge_truncated: bool = False,
        prompts: Mapping[str, PromptSource] | None = None,
    ) -> None:
        """Take the criterion, which is part of the version.

        Raises:
            ConfigError: it is empty or too long, or a rule or a prompt cannot be used.
        """
        self.name, self.criterion = name, checked_criterion(criterion, name)
        super().__init__(
            threshold=threshold, pass_when=pass_when, judge_truncated=judge_truncated, prompts=prompts
        )

    @property
    def version(self) -> str:
        """Changes with the text of the criterion."""
        return f"{super().version}-{hashlib.sha256(self.criterion.encode()).hexdigest()[:8]}"

    async def find(self, record: RagRecord, steps: StepSession) -> MetricFinding:
        """Ask the judge."""
        try:
            verdict = await steps.criterion(self.criterion)
        except JudgeUnable as exc:
            what = f"{exc}: a criterion takes a language model, such as openai:MODEL"
            raise JudgeUnable(what, usage=exc.usage) from exc
        if verdict.label is VerdictLabel.UNJUDGED:
            return MetricFinding(
                skip_reason=SkipReason.ALL_UNJUDGED, explanation="criterion unjudged", verdicts=(verdict,)
            )
        is_met = verdict.label is VerdictLabel.MET
        return MetricFinding(
            score=float(is_met),
            explanation="criterion met" if is_met else "criterion not met",
            verdicts=(verdict,),
            details=readings(quotes_unverified=not verdict.quote_verified),
        )


def checked_criterion(text: object, name: str) -> str:
    """Return the criterion on one line.

    Raises:
        ConfigError: it is no text, empty, or too long.
    """
    line = " ".join(text.split()) if isinstance(text, str) else ""
    if not line:
        raise ConfigError(
            f"the criterion {name!r} is empty: say what the answer must do, such as"
            ' "The answer names the next step"'
        )
    if len(line) > _MOST_CHARS:
        raise ConfigError(
            f"the criterion {name!r} has {len(line):,} characters, of at most {_MOST_CHARS}: ask one thing"
            " that is met or not, and make several criteria of several"
        )
    return line


def criterion_named(given: str) -> tuple[str, str]:
    """Return name and text of ``NAME=TEXT``, or of a text, whose words make the name.

    Raises:
        ConfigError: the text has no word that could be in a name.
    """
    if named := _NAMED.fullmatch(given.strip()):
        return named[1], named[2]
    plain = unicodedata.normalize("NFKD", given).encode("ascii", "ignore").decode().lower()
    slug = "_".join(re.findall(r"[a-z0-9]+", plain))
    if len(slug) > _MOST_NAME_CHARS:
        slug = slug[: _MOST_NAME_CHARS + 1].rpartition("_")[0] or slug[:_MOST_NAME_CHARS]
    if not slug and given.strip():
        raise ConfigError(
            "no name can be made of the criterion's words: write NAME=TEXT, such as next_step=…"
        )
    return (slug if slug[:1].isalpha() else f"criterion_{slug}".rstrip("_")), given


_NAMED: Final = re.compile(r"([A-Za-z][A-Za-z0-9_-]*)=(.*)", re.DOTALL)
