"""When somebody is told that an objective is broken, how often, and of what."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_DETECTOR: Final = "ragtrace/sequential.py"
_WATCH: Final = "collector/ragtrace_collector/alerts/watch.py"
_STAGE: Final = "collector/ragtrace_collector/alerts/stage.py"
_SINKS: Final = "collector/ragtrace_collector/alerts/sinks.py"
_NOTICES: Final = "collector/ragtrace_collector/alerts/notices.py"
_EVALUATE: Final = "collector/ragtrace_collector/evaluate/stage.py"
_DETECTOR_TESTS: Final = "tests/unit/test_sequential.py"
_WATCH_TESTS: Final = "tests/unit/collector/test_watch.py"
_ALERT_TESTS: Final = "tests/integration/collector/test_alerts.py"

MUTANTS: Final = (
    Mutant(
        promise="alerts",
        breaks="the bets of the detector are not fair",
        file=_DETECTOR,
        old="gain = weight * (happened - self.most)",
        new="gain = weight * (happened - 0.9 * self.most)",
        tests=(f"{_DETECTOR_TESTS}::test_each_bet_is_fair_where_the_claim_just_holds",),
    ),
    Mutant(
        promise="alerts",
        breaks="an answer counts once, however many it represents",
        file=_WATCH,
        old="weight = 1 / summary.probability / self.most_weight",
        new="weight = 1.0",
        tests=(f"{_WATCH_TESTS}::test_a_sample_of_what_looks_bad_is_not_taken_for_the_traffic",),
    ),
    Mutant(
        promise="alerts",
        breaks="an alarm is told at every answer",
        file=_WATCH,
        old="if state.alarm is None and state.detector.total >= self.limit:",
        new="if state.alarm is not None or state.detector.total >= self.limit:",
        tests=(f"{_WATCH_TESTS}::test_an_alarm_comes_once_and_ends_once",),
    ),
    Mutant(
        promise="alerts",
        breaks="answers are counted again after each step",
        file=_STAGE,
        old="up_to=answers[-1].id if answers else 0, notices",
        new="up_to=0, notices",
        tests=("tests/integration/cli/test_alerts.py::test_an_unbroken_one_is_no_failure",),
        hangs=True,
    ),
    Mutant(
        promise="alerts",
        breaks="the alarm of another objective goes on under its name",
        file=_STAGE,
        old="if watch is not None and state.claim == watch.claim:",
        new="if watch is not None:",
        tests=(f"{_ALERT_TESTS}::test_a_changed_objective_ends_its_alarm",),
    ),
    Mutant(
        promise="alerts",
        breaks="the signature of a notice leaves the body out",
        file=_SINKS,
        old='signed = b".".join((id_.encode(), seconds.encode(), body))',
        new='signed = b".".join((id_.encode(), seconds.encode(), b""))',
        tests=(f"{_ALERT_TESTS}::test_a_webhook_can_prove_who_sent_a_notice",),
    ),
    Mutant(
        promise="alerts",
        breaks="the address of a webhook is in messages",
        file=_SINKS,
        old='return f"{self.config.key} ({urlsplit(self._url).hostname})"',
        new='return f"{self.config.key} ({self._url})"',
        tests=(f"{_ALERT_TESTS}::test_no_address_of_a_webhook_is_in_a_message",),
    ),
    Mutant(
        promise="alerts",
        breaks="the name of a service mentions a channel of Slack",
        file=_NOTICES,
        old='return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")',
        new="return text",
        tests=(f"{_ALERT_TESTS}::test_slack_gets_blocks_that_mention_nobody",),
    ),
    Mutant(
        promise="alerts",
        breaks="the watch gets no judged answer",
        file=_EVALUATE,
        old="is_watched=bool(setup.live.config.slo),",
        new="is_watched=False,",
        tests=(f"{_ALERT_TESTS}::test_a_broken_objective_is_told_once_and_again_when_it_is_met",),
    ),
)
