"""Judges: who decides what a context says about a claim."""

from ragtrace.judge.layers import limited, timed, unwrapped
from ragtrace.judge.opening import JudgeFactory, JudgeSettings, judge_named_by, open_judge
from ragtrace.judge.scripted import Script, ScriptedJudge

__all__ = [
    "JudgeFactory",
    "JudgeSettings",
    "Script",
    "ScriptedJudge",
    "judge_named_by",
    "limited",
    "open_judge",
    "timed",
    "unwrapped",
]
