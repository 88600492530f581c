"""Judges: they decide what a context says about a claim."""

from ragtrace.judge._adaptive_limit import AdaptiveLimiter, adaptively_limited, limiter_of
from ragtrace.judge._cache_file import CacheFile, CacheSettings, default_cache_path
from ragtrace.judge._usage import metered, spent_by
from ragtrace.judge.cache import cached, uncached
from ragtrace.judge.embedding import EmbedderFactory, open_embedder
from ragtrace.judge.factory import JudgeFactory, JudgeSettings, judge_named_by, open_judge
from ragtrace.judge.layers import limited, timed, unwrapped
from ragtrace.judge.retry import Backoff, retrying
from ragtrace.judge.scripted import Script, ScriptedJudge
from ragtrace.judge.spec import JudgeSpec

__all__ = [
    "JudgeSettings",
    "JudgeSpec",
    "open_judge",
]
