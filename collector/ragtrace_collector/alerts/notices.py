"""What is told when an objective is broken or met again: JSON, or blocks of Slack; no content of answers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

from ragtrace.drift.runs import AnchorRun
from ragtrace_collector.alerts.objectives import failing_share
from ragtrace_collector.alerts.rules import DRIFT_PAGE, RUNBOOK
from ragtrace_collector.alerts.watch import Alarm, FailingAnswer, NoticeStatus
from ragtrace_collector.config import SloConfig

VERSION: Final = 1
_SLACK_TEXT: Final = 3_000
"""Slack's own limit of a text block."""
_SIGNS: Final = {
    NoticeStatus.FIRING: ":red_circle:",
    NoticeStatus.RESOLVED: ":large_green_circle:",
    NoticeStatus.ENDED: ":white_circle:",
    NoticeStatus.TEST: ":white_circle:",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerLinks:
    """Where an answer can be looked at."""

    page_url: str = ""
    """``ui.public_url``; empty without one."""
    traces: Mapping[str, str] = field(default_factory=dict)
    """``ui.links``."""

    def of(self, answer: FailingAnswer) -> dict[str, Any]:
        """Return an answer's ids, score and links."""
        key = answer.key
        of_tenant = f"?{urlencode({'tenant': key.tenant})}" if key.tenant else ""
        page = f"{self.page_url}/answers/{key.trace_id}/{key.span_id}{of_tenant}" if self.page_url else None
        links = {name: url.replace("{trace_id}", key.trace_id) for name, url in self.traces.items()}
        return {
            "trace_id": key.trace_id,
            "span_id": key.span_id,
            "score": answer.score,
            "url": page,
            "links": links,
        }


def notice_of(slo: SloConfig, status: NoticeStatus, alarm: Alarm, *, at_ns: int, links: AnswerLinks) -> bytes:
    """Return the notice as JSON; the same for the same arguments, so that a repeated one is recognized."""
    is_over = status in (NoticeStatus.RESOLVED, NoticeStatus.ENDED)
    is_known = status is not NoticeStatus.ENDED  # then the configuration has another objective, or none
    about = {
        "metric": slo.metric,
        "at_least": slo.at_least,
        "objective": slo.objective,
        **slo.dimensions,
    }
    told = {
        "version": VERSION,
        "id": f"{alarm.id}-{status}",
        "alert_id": alarm.id,
        "status": str(status),
        "text": _sentence(slo, status, alarm),
        "slo": {"name": slo.name, **(about if is_known else {})},
        "since": moment(alarm.since_ns),
        "fired_at": moment(alarm.fired_ns),
        "resolved_at": moment(at_ns) if is_over else None,
        "judged_answers": alarm.judged,
        "failing_answers": alarm.failing,
        "failing_share": round(alarm.share, 4),
        "allowed_share": failing_share(slo) if is_known else None,
        "worst": [] if is_over else [links.of(answer) for answer in alarm.worst],
        "runbook_url": f"{RUNBOOK}#ragtracesloburnsfast",
    }
    return json.dumps(told).encode()


def drift_notices(run: AnchorRun, flipped: int, *, sinks: Iterable[str]) -> Mapping[str, bytes]:
    """Return by sink the notice that the judge has changed. The answers that it counts are anchors."""
    return dict.fromkeys(sinks, _drift_notice(run, flipped))


def _drift_notice(run: AnchorRun, flipped: int) -> bytes:
    digest = hashlib.sha256(
        f"{run.evaluator_version}/{run.anchors_sha256}/{run.began_ns}".encode()
    ).hexdigest()
    told = {
        "version": VERSION,
        "id": f"{digest[:24]}-{NoticeStatus.FIRING}",
        "alert_id": digest[:24],
        "status": str(NoticeStatus.FIRING),
        "text": f"the judge {run.judge} has changed: it judges {flipped} of {run.judged} anchors another way"
        " than at first; until it is accepted, no objective is called broken",
        "slo": {"name": "judge drift"},
        "since": moment(run.began_ns),
        "fired_at": moment(run.ended_ns),
        "resolved_at": None,
        "judged_answers": run.judged,
        "failing_answers": flipped,
        "failing_share": round(flipped / run.judged, 4),
        "allowed_share": None,
        "worst": [],
        "runbook_url": DRIFT_PAGE,
    }
    return json.dumps(told).encode()


def trial_notice(slo: SloConfig, *, at_ns: int) -> bytes:
    """Return a notice that says that it is a test."""
    none = Alarm(id=f"test-{at_ns}", fired_ns=at_ns, since_ns=at_ns, judged=0, failing=0, share=0.0)
    return notice_of(slo, NoticeStatus.TEST, none, at_ns=at_ns, links=AnswerLinks())


def _sentence(slo: SloConfig, status: NoticeStatus, alarm: Alarm) -> str:
    of = f" of {slo.service}" if slo.service else ""
    counted = f"{alarm.failing} of {alarm.judged} judged answers{of} fail {slo.metric}"
    allowed = 100 * failing_share(slo)
    weighted = f"an estimated {100 * alarm.share:.3g} % of the traffic, and {allowed:.3g} % may"
    if status is NoticeStatus.FIRING:
        return f"{slo.name} is broken: {counted} since {moment(alarm.since_ns)} ({weighted})"
    if status is NoticeStatus.RESOLVED:
        return f"{slo.name} is better again: {counted} in the newest answers ({weighted})"
    if status is NoticeStatus.TEST:
        return f"{slo.name}: this is a test, and nothing is wrong"
    return f"{slo.name} is watched no longer: the objective was changed or removed"


def moment(time_ns: int) -> str:
    """Write a time as people and programs read it, to the second."""
    return datetime.fromtimestamp(time_ns // 1_000_000_000, UTC).isoformat(timespec="seconds")


def slack_form(notice: Mapping[str, Any]) -> dict[str, Any]:
    """Return a notice as a message of Slack (Block Kit), with the text that its notification shows."""
    sign = _SIGNS[NoticeStatus(notice["status"])]
    blocks = [_section(f"{sign} {_escaped(notice['text'])}")]
    worst = [_slack_answer(answer) for answer in notice["worst"]]
    if worst:
        blocks.append(_section("*The worst of them*\n" + "\n".join(worst)))
    about = ", ".join(f"{key} {value}" for key, value in notice["slo"].items() if value is not None)
    footer = f"{_escaped(about)} · <{notice['runbook_url']}|what to do>"
    blocks.append({"type": "context", "elements": [{"type": "mrkdwn", "text": footer[:_SLACK_TEXT]}]})
    return {"text": _escaped(notice["text"]), "blocks": blocks}


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text[:_SLACK_TEXT]}}


def _slack_answer(answer: Mapping[str, Any]) -> str:
    score = "no score" if answer["score"] is None else f"score {answer['score']:.2f}"
    urls = {**({"answer": answer["url"]} if answer["url"] else {}), **answer["links"]}
    links = " · ".join(f"<{_escaped(url)}|{_escaped(name)}>" for name, url in urls.items())
    return f"• {score}: {links or '`' + answer['trace_id'] + '`'}"


def _escaped(text: str) -> str:
    """Escape what Slack reads as markup: a service's name must not mention a channel."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
