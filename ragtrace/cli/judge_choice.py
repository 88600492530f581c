"""What is said about a judge on stderr, and whether it costs anything."""

from __future__ import annotations

import os
from ipaddress import ip_address
from urllib.parse import urlsplit

import click

from ragtrace.budget import Prices
from ragtrace.cli.render import many, talk
from ragtrace.clock import SystemClock
from ragtrace.judge import spent_by
from ragtrace.judge.spec import JudgeSpec
from ragtrace.model import JudgeIdentity
from ragtrace.pipeline import Evaluator
from ragtrace.ports import Clock, Judge


def report_usage(judge: Judge, prices: Prices) -> None:
    """Say on stderr what a judge that costs anything was asked, and what that comes to."""
    spent = spent_by(judge)
    if judge.identity.computes:
        return
    cached = f" ({spent.cached_tokens:,} cached)" if spent.cached_tokens else ""
    tokens = f"{spent.input_tokens:,}{cached} + {spent.output_tokens:,} tokens"
    cost = prices.cost_usd(spent, judge.identity)
    dollars = "cost unknown" if cost is None else f"${cost:.4f} at the prices of {prices.date}"
    talk(f"{many(spent.calls, 'call')} to {judge.identity.model}: {tokens}, {dollars}")
    warn_of_old_prices(prices, judge.identity)


def warn_of_old_prices(prices: Prices, who: JudgeIdentity, *, clock: Clock | None = None) -> None:
    """Say on stderr, once a run, that a price was looked up long ago."""
    warning = prices.too_old(who, now_ns=(clock or SystemClock()).now_ns())
    context = click.get_current_context(silent=True)
    said = context.find_root().meta.setdefault("ragtrace.old_prices", set()) if context else set()
    if warning and warning not in said:
        said.add(warning)
        talk(f"warning: {warning}")


def introduce(judge: Judge) -> None:
    """Say on stderr who judges, and how much that is worth where it is a heuristic."""
    talk(f"judge: {judge.identity.provider} ({judge.identity.model})")
    if judge.identity.screen:
        talk(f"  after the screen {judge.identity.screen}")
    if judge.identity.provider == "lexical":
        talk(
            "  a heuristic of numbers, names and wording: it leaves many claims unjudged.\n"
            "  Do not base an alert on it alone. Use a model with --judge openai:MODEL."
        )


def is_free(evaluator: Evaluator, spec: JudgeSpec) -> bool:
    """Say whether judging costs nothing: by code, at a price of 0, or at an endpoint of this machine without
    a price."""
    return all(_is_free(judge.identity, evaluator.prices, spec) for judge in evaluator.judges)


def _is_free(who: JudgeIdentity, prices: Prices, spec: JudgeSpec) -> bool:
    if who.computes:
        return True
    price = prices.price_of(who)
    if price is not None:
        return price.input == price.output == 0
    return _is_here(_endpoint(who, spec))


def _endpoint(who: JudgeIdentity, spec: JudgeSpec) -> str:
    named = spec.base_url if spec.kind == who.provider else None
    return named or os.environ.get(f"{who.provider.upper()}_BASE_URL", "")


def _is_here(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
