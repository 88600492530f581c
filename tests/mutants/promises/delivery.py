"""What is on its way to a back end: there, refused or kept, and told as what it is."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_DELIVERING: Final = "collector/ragtrace_collector/deliver/outbox.py"
_ANSWER: Final = "ragtrace/backends/_otlp_answer.py"
_DELIVERING_TESTS: Final = "tests/integration/collector/test_delivering.py"
_SERVICE_TESTS: Final = "tests/integration/collector/test_service.py"
_SINK_TESTS: Final = "tests/unit/backends/test_sinks.py"
_UNREADABLE_TESTS: Final = "tests/attack/test_unreadable_answers.py"
_SOAK_TESTS: Final = "tests/soak/test_soak.py"

MUTANTS: Final = (
    Mutant(
        promise="delivery",
        breaks="a third of deliveries is thrown away and told as done",
        file=_DELIVERING,
        old="            await self.sink.send(payload)\n",
        new="            if payload[-1] % 3:\n                await self.sink.send(payload)\n",
        tests=(f"{_SOAK_TESTS}::test_everything_that_was_sent_is_accounted_for_under_mixed_load",),
        is_slow=True,
    ),
    Mutant(
        promise="delivery",
        breaks="what a back end that is away was sent is told as delivered",
        file=_DELIVERING,
        old="            self._back_off(exc, exc.retry_after_s)\n            return False\n",
        new="            await self._delivered(batch, Counts.ITEMS_DELIVERED)\n            return True\n",
        tests=(f"{_DELIVERING_TESTS}::test_a_back_end_that_stays_away_is_asked_ever_more_seldom",),
    ),
    Mutant(
        promise="delivery",
        breaks="what one token or address refuses is set aside for good",
        file=_DELIVERING,
        old="        except SendRefused as exc:  # keep the items until someone fixes it\n"
        "            self._back_off(exc)\n            return False\n",
        new="        except SendRefused as exc:\n            return await self._reject(batch, exc)\n",
        tests=(f"{_DELIVERING_TESTS}::test_what_a_person_mends_at_a_back_end_goes_out_then",),
    ),
    Mutant(
        promise="delivery",
        breaks="a partial success is taken for a whole one",
        file=_ANSWER,
        old="    if rejected:\n",
        new="    if False:\n",
        tests=(
            "tests/attack/test_partial_success.py::test_every_verdict_that_a_back_end_refused_is_told_kept_and_counted",
        ),
    ),
    Mutant(
        promise="delivery",
        breaks="of what was refused together all is set aside",
        file=_DELIVERING,
        old="return await (self._deliver_each(batch) if len(batch) > 1 else self._reject(batch, exc))",
        new="return await self._reject(batch, exc)",
        tests=(
            f"{_DELIVERING_TESTS}::test_of_what_was_sent_together_only_what_is_refused_alone_is_set_aside",
        ),
    ),
    Mutant(
        promise="delivery",
        breaks="a yes that nobody can read counts as a delivery",
        file=_DELIVERING,
        old="await self._delivered(batch, Counts.ITEMS_UNCONFIRMED, unconfirmed=str(exc))",
        new="await self._delivered(batch, Counts.ITEMS_DELIVERED)",
        tests=(f"{_UNREADABLE_TESTS}::test_what_is_answered_unreadably_is_sent_ever_more_seldom[no gzip]",),
    ),
    Mutant(
        promise="delivery",
        breaks="what is answered unreadably is sent for ever",
        file=_DELIVERING,
        old="        if exc.again and self._unreadable < MOST_UNREADABLE:\n",
        new="        if exc.again:\n",
        tests=(f"{_UNREADABLE_TESTS}::test_what_is_answered_unreadably_is_sent_ever_more_seldom[no gzip]",),
    ),
    Mutant(
        promise="delivery",
        breaks="a back end that fails is asked at once, again and again",
        file=_DELIVERING,
        old="delay_s = _BACKOFF.own_wait_s(self._failures) if after_s is None else after_s",
        new="delay_s = 0.0",
        tests=(f"{_DELIVERING_TESTS}::test_a_back_end_that_stays_away_is_asked_ever_more_seldom",),
    ),
    Mutant(
        promise="delivery",
        breaks="the time that a back end asks for is not kept",
        file=_DELIVERING,
        old="            self._back_off(exc, exc.retry_after_s)\n",
        new="            self._back_off(exc)\n",
        tests=(f"{_DELIVERING_TESTS}::test_a_back_end_is_left_alone_for_the_time_that_it_asks_for",),
    ),
    Mutant(
        promise="delivery",
        breaks="503 is taken for a refusal for good",
        file="ragtrace/http/retry.py",
        old="statuses=frozenset({429, 502, 503, 504})",
        new="statuses=frozenset({429, 502, 504})",
        tests=(f"{_SINK_TESTS}::test_http_codes_of_a_passing_trouble_are_retryable",),
    ),
    Mutant(
        promise="delivery",
        breaks="a request that was written before a crash is written again",
        file="ragtrace/backends/otlp_file.py",
        old="            self._known = _recover(self._path)\n",
        new="            self._known = _recover(self._path) and {}\n",
        tests=(
            "tests/unit/backends/test_otlp_file.py::test_request_that_was_written_before_a_crash_is_not_doubled",
        ),
    ),
    Mutant(
        promise="delivery",
        breaks="originals go on without the spans of sampled-out traces",
        file="collector/ragtrace_collector/receive/intake.py",
        old='        originals = inbound.without(kept_back).to_bytes() if self._forward_to else b""\n',
        new='        originals = inbound.without(kept_back).to_bytes() if split.slices else b""\n',
        tests=(f"{_DELIVERING_TESTS}::test_originals_go_on_whether_or_not_they_are_judged",),
    ),
    Mutant(
        promise="redirects",
        breaks="a back end's redirect is followed wherever it points",
        file="ragtrace/http/client.py",
        old='        "follow_redirects": False,\n',
        new='        "follow_redirects": True,\n',
        tests=(f"{_UNREADABLE_TESTS}::test_a_redirect_is_not_followed_and_says_where_it_points",),
    ),
)
