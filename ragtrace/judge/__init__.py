"""Judges: they decide what a context says about a claim."""

from ragtrace.http import Backoff
from ragtrace.judge.cache import CacheFile, cached, default_cache_path, uncached
from ragtrace.judge.layers import AdaptiveLimiter, Paced, Retrying, limiter_of, spent_by, unwrapped
from ragtrace.judge.scripted import Script, ScriptedJudge
from ragtrace.judge.spec import JudgeSettings, JudgeSpec, judge_named_by, open_embedder, open_judge

__all__ = [
    "JudgeSettings",
    "JudgeSpec",
    "open_judge",
]
