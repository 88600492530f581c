"""Judges: who decides what a context says about a claim."""

from ragtrace.judge.embedding import EmbedderFactory, open_embedder
from ragtrace.judge.layers import limited, timed, unwrapped
from ragtrace.judge.opening import JudgeFactory, JudgeSettings, judge_named_by, open_judge
from ragtrace.judge.retrying import Backoff, retrying
from ragtrace.judge.scripted import Script, ScriptedJudge

__all__ = [
    "Backoff",
    "EmbedderFactory",
    "JudgeFactory",
    "JudgeSettings",
    "Script",
    "ScriptedJudge",
    "judge_named_by",
    "limited",
    "open_embedder",
    "open_judge",
    "retrying",
    "timed",
    "unwrapped",
]
