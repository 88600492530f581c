"""Options of `ragtrace evaluate`: whose rules and prompts measure, and how claims are verified."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

import click

from ragtrace.cli.options import OWN_PROFILE, TOOLS, PassOptions, make_metric, split_names
from ragtrace.cli.settings import group, option

if TYPE_CHECKING:
    from ragtrace.compat.tool import ToolOptions
    from ragtrace.metrics import StepLimits
    from ragtrace.metrics.calibration_file import Calibration
    from ragtrace.model import JudgeIdentity
    from ragtrace.ports import Metric


VERIFY_FORMS: Final = ("auto", "json", "logprobs")
"""The values of `ragtrace.metrics.verify_settings.VerifyForm`."""
_SCORING_OPTIONS: Final = ("strict_mode", "penalize_ambiguous_claims")


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """How the judge is asked about claims."""

    claims_per_call: int = option(
        "--batch-size",
        type=click.IntRange(1, 200),
        default=20,
        show_default=True,
        metavar="N",
        help="Claims in one request; use fewer for models with short replies.",
    )
    form: str = option(
        "--verify",
        type=click.Choice(VERIFY_FORMS),
        default="auto",
        show_default=True,
        help="How verdicts are requested: json (batches, with quotes), logprobs (P(Yes) of one claim), or"
        " auto (from --calibration, else json).",
    )
    canary_rate: float = option(
        "--sentinel-rate",
        type=click.FloatRange(0, 1),
        default=1.0,
        show_default=True,
        metavar="SHARE",
        help="The share of records whose requests contain canary claims: claims with known verdicts.",
    )
    second_look: bool = option(
        "--second-look", is_flag=True, help="Ask again about claims that are not supported."
    )

    def limits(self, measured: Calibration | None, judge: JudgeIdentity) -> StepLimits:
        """Return the limits of the steps; a calibration decides what ``auto`` means.

        Raises:
            ConfigError: another judge was measured.
        """
        from dataclasses import replace

        from ragtrace.metrics import StepLimits
        from ragtrace.metrics.verify_settings import VerifyForm, VerifySettings

        settings = measured.settings(judge) if measured else VerifySettings()
        form = VerifyForm(self.form)
        verify = replace(settings, form=form, sentinel_rate=self.canary_rate, second_look=self.second_look)
        return StepLimits(claims_per_call=self.claims_per_call, verify=verify)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolMetricOptions:
    """What users of other tools set: `ragtrace.compat.tool.ToolOptions`."""

    include_reason: bool = option(
        "--include-reason", is_flag=True, help="deepeval: ask for a reason too, with one more call."
    )
    strict_mode: bool = option("--strict-mode", is_flag=True, help="deepeval: every score below 1 becomes 0.")
    penalize_ambiguous_claims: bool = option(
        "--penalize-ambiguous-claims",
        is_flag=True,
        help="deepeval: claims that the context does not mention fail.",
    )
    truths_extraction_limit: int | None = option(
        "--truths-extraction-limit",
        type=click.IntRange(min=0),
        metavar="N",
        help="deepeval: ask for N truths of each document.",
    )
    strictness: int = option(
        "--strictness",
        type=click.IntRange(min=1),
        default=3,
        show_default=True,
        metavar="N",
        help="ragas, promptfoo: make N questions from the answer.",
    )
    max_retries: int = option(
        "--max-retries",
        type=click.IntRange(min=0),
        default=3,
        show_default=True,
        metavar="N",
        help="ragas: ask again N times if a reply is unreadable.",
    )
    text_fallback: bool = option(
        "--text-fallback/--no-text-fallback",
        default=True,
        show_default=True,
        help="promptfoo: count `verdict: yes` if the final line is missing.",
    )

    def prompt_options(self) -> ToolOptions:
        """Return what a tool's prompts take."""
        from ragtrace.compat.tool import ToolOptions

        return ToolOptions(**{each.name: getattr(self, each.name) for each in fields(self)})

    def scoring_rules(self, profile: str) -> dict[str, bool]:
        """Return the options that change scores only.

        Raises:
            UsageError: an option was given that changes prompts.
        """
        given = {
            each.name: getattr(self, each.name)
            for each in fields(self)
            if getattr(self, each.name) != each.default
        }
        for name in given:
            needed = "--profile deepeval-4 or -3" if name in _SCORING_OPTIONS else "--peer-prompts"
            if name not in _SCORING_OPTIONS or not profile.startswith("deepeval"):
                raise click.UsageError(f"--{name.replace('_', '-')} needs {needed}")
        return given


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileOptions:
    """What is measured, and by whose rules."""

    names: str = option(
        "--metrics",
        metavar="NAMES",
        default="faithfulness",
        show_default=True,
        help="Separated by commas; `ragtrace metrics` lists them.",
    )
    passes: PassOptions = group(PassOptions)
    profile: str = option(
        "--profile",
        type=click.Choice((OWN_PROFILE, *TOOLS)),
        default=OWN_PROFILE,
        show_default=True,
        metavar="TOOL",
        help=f"Whose rules turn verdicts into scores: {', '.join((OWN_PROFILE, *TOOLS))}.",
    )
    uses_tool_prompts: bool = option(
        "--peer-prompts",
        is_flag=True,
        help="Ask as the tool of --profile asks: its calls in its order, its JSON fields and text formats.",
    )
    tool: ToolMetricOptions = group(ToolMetricOptions)

    def __post_init__(self) -> None:
        """Refuse options that do not go together."""
        if self.uses_tool_prompts and self.profile == OWN_PROFILE:
            raise click.UsageError("--peer-prompts needs --profile: whose prompts?")
        if self.passes.pass_when and self.profile != OWN_PROFILE:
            raise click.UsageError(
                "--pass-when works with ragtrace's own profile only:"
                f" with --profile {self.profile}, give --threshold"
            )

    def metrics(self) -> tuple[Metric, ...]:
        """Make the metrics.

        Raises:
            ConfigError: there is no such metric.
            UsageError: an option does not go with the profile.
        """
        names = split_names(self.names)
        if self.uses_tool_prompts:
            return tuple(map(self._prompted, names))
        rules = self.tool.scoring_rules(self.profile)
        return tuple(
            make_metric(name, profile=self.profile, **self.passes.rules(), **rules) for name in names
        )

    def _prompted(self, name: str) -> Metric:
        from ragtrace.compat.tool_metric import ToolPrompted
        from ragtrace.compat.tools import tool_named

        peer = tool_named(name, self.profile)
        return ToolPrompted(peer, options=self.tool.prompt_options(), threshold=self.passes.threshold)
