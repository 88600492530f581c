"""Metrics by name: built-in ones, plug-ins (entry points ``ragtrace.metrics``), and addresses
(``./my_metric.py:Politeness`` or ``module:Politeness``).

An entry point has the name of its metric, or ``<metric>.<profile>`` if it follows the rules of another tool.
It is a callable ``(*, threshold: float = …) -> Metric``.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import EntryPoint
from typing import Any, Final, cast

from ragtrace.errors import ConfigError, RagtraceError
from ragtrace.metrics.answers import Criterion
from ragtrace.model import Direction, MetricFailure, MetricResult
from ragtrace.plugins import Address, find_plugins, load_address, load_plugin
from ragtrace.ports import Metric
from ragtrace.scoring import PROFILES, canonical

GROUP = "ragtrace.metrics"
OWN_PROFILE = "ragtrace"
BUILT_IN = {
    "answer_relevance": "ragtrace.metrics.answers:AnswerRelevance",
    "chunk_precision": "ragtrace.metrics.retrieval:ChunkPrecision",
    "citation_precision": "ragtrace.metrics.citations:CitationPrecision",
    "citation_recall": "ragtrace.metrics.citations:CitationRecall",
    "context_precision": "ragtrace.metrics.retrieval:ContextPrecision",
    "context_recall": "ragtrace.metrics.retrieval:ContextRecall",
    "context_relevance": "ragtrace.metrics.retrieval:ContextRelevance",
    "factual_correctness": "ragtrace.metrics.answers:FactualCorrectness",
    "faithfulness": "ragtrace.metrics.faithfulness:Faithfulness",
    "groundedness": "ragtrace.metrics.faithfulness:Groundedness",
    "hallucination": "ragtrace.metrics.faithfulness:Hallucination",
    "noise_sensitivity": "ragtrace.metrics.answers:NoiseSensitivity",
    "question_similarity": "ragtrace.metrics.answers:QuestionSimilarity",
    "rag_score": "ragtrace.metrics.answers:RagScore",
    "retrieval_mrr": "ragtrace.metrics.retrieval:RetrievalReciprocalRank",
    "retrieval_ndcg": "ragtrace.metrics.retrieval:RetrievalNdcg",
    "retrieval_recall": "ragtrace.metrics.retrieval:RetrievalRecall",
}
_TOOL_METRIC = EntryPoint("tool_metric", "ragtrace.compat.tool:open_tool_metric", GROUP)
_PROFILED = EntryPoint("profile", "ragtrace.compat.tool:ProfileMetric", GROUP)
"""Scores the verdicts of a built-in metric by another tool's rule."""


def metric_named(
    name: str,
    *,
    profile: str = OWN_PROFILE,
    threshold: float | None = None,
    pass_when: str | None = None,
    criterion: str | None = None,
    **options: Any,
) -> Metric:
    """Make the metric with this name or address. Other tools' names of built-in metrics work too.

    Args:
        name: ``faithfulness``, ``answer_relevancy``, ``./my_metric.py:Politeness``.
        profile: The tool whose rules apply.
        threshold: Where ``pass`` begins; by default the metric's own rule.
        pass_when: The pass rule, instead of a threshold: ``contradicted == 0 and unsupported <= 1``. Only for
            built-in metrics under ragtrace's own profile; other tools have their own rules.
        criterion: What the answer must do: makes a metric of that name whose score is 1 if it does, else 0.
        options: Other options of the metric. Built-in metrics take ``judge_truncated`` and ``prompts``, a
            mapping of a prompt's name to its replacement, a path or a text: ``prompts={"verify":
            Path("mine.md")}``.

    Raises:
        ConfigError: there is no such metric, or it is not a metric; the message lists the available ones.
    """
    if threshold is not None:
        options["threshold"] = threshold
    if pass_when is not None:
        if profile != OWN_PROFILE:
            raise ConfigError(
                f"`pass_when` is a rule of ragtrace's own profile: under {profile!r}, {name} passes by"
                " that tool's rule and a `threshold`"
            )
        options["pass_when"] = pass_when
    if address := Address.parse(name):
        return make_metric(load_address(address), named=name, **options)
    points = find_plugins(GROUP, BUILT_IN)
    if criterion is not None:
        if canonical(name) in points or profile != OWN_PROFILE:
            raise ConfigError(
                f"{name!r} is a metric of its own: give the criterion another name"
                if profile == OWN_PROFILE
                else f"{name!r} is a criterion, which follows no other tool's rules: leave out {profile!r}"
            )
        return make_metric(Criterion, named=name, name=name, criterion=criterion, **options)
    suffix = "" if profile == OWN_PROFILE else f".{profile}"
    keys = [f"{known_as}{suffix}" for known_as in (name, canonical(name))]
    key = next((key for key in keys if key in points), keys[0])
    if key not in points:
        if profile in PROFILES and canonical(name) in points:
            return make_metric(load_plugin(_PROFILED), named=key, metric=name, profile=profile, **options)
        there = ", ".join(sorted(points))
        raise ConfigError(f"there is no metric {key!r}: choose from {there}, or name code: ./FILE.py:NAME")
    return make_metric(load_plugin(points[key]), named=key, **options)


def tool_metric_named(
    name: str, *, profile: str, options: Mapping[str, object], threshold: float | None = None
) -> Metric:
    """Return another tool's metric, asked with that tool's own prompts.

    Raises:
        ConfigError: there is no such metric, or it has no such option; the message lists what there is.
    """
    metric: Metric = load_plugin(_TOOL_METRIC)(name, profile=profile, options=options, threshold=threshold)
    return metric


_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
"""A name that can be part of an attribute key."""


def make_metric(make: Any, *, named: str, **options: Any) -> Metric:
    """Call a metric's factory; ``named`` is how the user asked for it.

    Raises:
        ConfigError: it does not take the options, fails, or returns something that is not a metric.
    """
    if not callable(make):
        raise ConfigError(f"metric {named!r} is a {type(make).__name__}: name a class or a function")
    try:
        metric = make(**options)  # plug-in code may raise anything
    except RagtraceError:
        raise
    except Exception as exc:
        taken = dict.fromkeys(_options_of(make))
        strange = [name for name in options if isinstance(exc, TypeError) and taken and name not in taken]
        why = f"it has no option `{strange[0]}`" if strange else str(exc)
        takes = ", ".join(f"`{name}`" for name in taken) or "none"
        raise ConfigError(f"metric {named!r} cannot be made: {why} (its options: {takes})") from exc
    valid = valid_metric(metric, named=named)
    threshold: object = getattr(metric, "threshold", None)
    if valid.pass_when is None and not (isinstance(threshold, float | int) and math.isfinite(threshold)):
        raise ConfigError(f"{named!r} gives no metric: {valid.name!r} has no `threshold`, a number")
    return valid


def valid_metric(metric: object, *, named: str) -> Metric:
    """Return what is a metric in form.

    Raises:
        ConfigError: it is none; says what it lacks.
    """
    lack = _lack(metric)
    if lack is not None:
        raise ConfigError(f"{named!r} gives no metric: {lack} (see ragtrace.ports.Metric)")
    return cast(Metric, metric)


def problem_in(result: object, metric: Metric) -> str | None:
    """Describe the fault of a metric's result; ``None`` if it is valid.

    An invalid score, or a missing one without a reason, must not reach a trace.
    """
    if not isinstance(result, MetricResult | MetricFailure):
        return f"it returned a {type(result).__name__} instead of a MetricResult"
    if (result.metric, result.profile) != (metric.name, metric.profile):
        return f"its result is called {result.metric!r} ({result.profile})"
    if isinstance(result, MetricFailure):
        return None
    try:
        hash((result.verdicts, result.chunk_verdicts))
    except TypeError as exc:
        return f"its verdicts are not frozen values (tuples, not lists): {exc}"
    if result.score is None:
        return None if result.skip_reason else "its result has neither a score nor a `skip_reason`"
    if not math.isfinite(result.score) or not 0 <= result.score <= 1:
        return f"its score is {result.score!r}, outside [0, 1]"
    if result.threshold is None and result.passed is None:
        return "its result says neither where `pass` begins (`threshold`) nor whether it `passed`"
    return "its result has a score and a `skip_reason`" if result.skip_reason else None


def _options_of(make: Any) -> Iterator[str]:
    """Yield the names of a factory's options, of a class with those that it passes on."""
    for each in make.__mro__[:-1] if isinstance(make, type) else (make,):
        with suppress(ValueError):  # some built-in callables have no signature
            parameters = inspect.signature(each).parameters.values()
            yield from (known.name for known in parameters if known.kind is not known.VAR_KEYWORD)


def _lack(metric: Any) -> str | None:
    for attribute in ("name", "profile", "version"):
        value = getattr(metric, attribute, None)
        if not isinstance(value, str) or not value:
            return f"a {type(metric).__name__} without `{attribute}`, a text"
    name = getattr(metric, "name", "")
    if not _NAME.fullmatch(name):
        return f"its name {name!r} cannot be part of an attribute key"
    if not isinstance(getattr(metric, "direction", None), Direction):
        return f"{name!r} has no `direction`, a ragtrace.model.Direction"
    if not inspect.iscoroutinefunction(getattr(metric, "measure", None)):
        return f"{name!r} has no `async def measure(record, steps)`"
    for attribute in ("needs", "uses", "prompts", "pass_when"):
        if not hasattr(metric, attribute):
            return f"{name!r} has no `{attribute}`: inherit the port, which has a default"
    return None
