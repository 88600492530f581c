"""Options of `ragtrace evaluate`: whose rules and prompts measure."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

import click

from ragtrace.cli.options import (
    OWN_PROFILE,
    TOOLS,
    MetricChanges,
    PassOptions,
    metric_spec,
    split_names,
)
from ragtrace.cli.settings import group, option

if TYPE_CHECKING:
    from ragtrace.pipeline.spec import MetricSpec


_SCORING_OPTIONS: Final = ("strict_mode", "penalize_ambiguous_claims")


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

    def prompt_options(self) -> dict[str, Any]:
        """Return what a tool's prompts take."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

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
        help=f"The tool whose rules turn verdicts into scores: {', '.join((OWN_PROFILE, *TOOLS))}.",
    )
    uses_tool_prompts: bool = option(
        "--peer-prompts",
        is_flag=True,
        help="Ask as the tool of --profile asks: its calls in its order, its JSON fields and text formats.",
    )
    changes: MetricChanges = group(MetricChanges)
    tool: ToolMetricOptions = group(ToolMetricOptions)

    def __post_init__(self) -> None:
        """Refuse options that do not go together."""
        if self.uses_tool_prompts and self.profile == OWN_PROFILE:
            raise click.UsageError("--peer-prompts needs --profile: whose prompts?")
        if self.uses_tool_prompts and self.changes.prompts:
            raise click.UsageError("--prompts replaces ragtrace's prompts: leave out --peer-prompts")
        if self.passes.pass_when and self.profile != OWN_PROFILE:
            raise click.UsageError(
                "--pass-when works with ragtrace's own profile only:"
                f" with --profile {self.profile}, give --threshold"
            )

    def metric_specs(self) -> tuple[MetricSpec, ...]:
        """Return the metrics, not made yet.

        Raises:
            UsageError: an option does not go with the profile.
        """
        names = split_names(self.names)
        if self.uses_tool_prompts:
            return self.changes.applied(tuple(map(self._prompted, names)))
        rules = self.tool.scoring_rules(self.profile)
        return self.changes.applied(
            tuple(
                metric_spec(name, profile=self.profile, **self.passes.rules(), options=rules)
                for name in names
            )
        )

    def _prompted(self, name: str) -> MetricSpec:
        from ragtrace.pipeline.spec import MetricSpec

        return MetricSpec(
            name=name,
            profile=self.profile,
            threshold=self.passes.threshold,
            uses_tool_prompts=True,
            options=self.tool.prompt_options(),
        )
