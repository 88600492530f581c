"""Judges by name: the built-in ones, and those of installed plug-ins (entry points ``ragtrace.judges``)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, cast

from ragtrace.errors import ConfigError
from ragtrace.judge.layers import limited
from ragtrace.plugins import find_plugins, load_plugin
from ragtrace.ports import Judge

__all__ = ["JudgeFactory", "JudgeSettings", "judge_named_by", "open_judge"]

GROUP = "ragtrace.judges"
DEFAULT_MODEL = "gpt-4o-mini"
_BUILT_IN = {
    "lexical": "ragtrace.judge.lexical:open_lexical",
    "openai": "ragtrace.judge.openai_compatible:open_openai",
    "scripted": "ragtrace.judge.scripted:open_scripted",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """What a judge is opened with."""

    argument: str
    """What stands behind the colon: the model of ``openai:MODEL``, the file of ``scripted:PATH``."""
    base_url: str | None = None
    api_key_env: str = "OPENAI_API_KEY"
    """The environment variable that holds the key."""
    timeout_s: float = 60.0
    """For one request."""
    max_retries: int = 2
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)


JudgeFactory: TypeAlias = Callable[[JudgeSettings], Judge]
"""What an entry point of the group gives."""


def open_judge(
    spec: str,
    *,
    base_url: str | None = None,
    api_key_env: str = "OPENAI_API_KEY",
    timeout_s: float = 60.0,
    max_retries: int = 2,
    max_concurrency: int = 8,
    environ: Mapping[str, str] | None = None,
) -> Judge:
    """Open the judge that ``lexical``, ``openai:MODEL``, ``scripted:PATH`` or ``PLUGIN:ARGUMENT`` names.

    Raises:
        ConfigError: no such judge, or it lacks a setting; the message names what to set.
    """
    name, _, argument = spec.partition(":")
    points = find_plugins(GROUP, _BUILT_IN)
    if name not in points:
        raise ConfigError(
            f"there is no judge {name!r}: choose `lexical`, `openai:MODEL` or `scripted:PATH`"
            f" (installed: {', '.join(sorted(points))})"
        )
    settings = JudgeSettings(
        argument=argument,
        base_url=base_url,
        api_key_env=api_key_env,
        timeout_s=timeout_s,
        max_retries=max_retries,
        environ=os.environ if environ is None else environ,
    )
    make = cast(JudgeFactory, load_plugin(points[name]))
    return limited(make(settings), max_concurrency)


def judge_named_by(environ: Mapping[str, str]) -> str:
    """Return what `open_judge` takes for the judge that the environment names, ``lexical`` if none.

    ``OPENAI_API_KEY`` or ``OPENAI_BASE_URL`` names one; its model is ``RAGTRACE_JUDGE_MODEL``.
    """
    if environ.get("OPENAI_API_KEY") or environ.get("OPENAI_BASE_URL"):
        return f"openai:{environ.get('RAGTRACE_JUDGE_MODEL') or DEFAULT_MODEL}"
    return "lexical"
