"""Which answers are judged, with which probability on record, and within which budget."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_POSITION: Final = "ragtrace/sampling/_position.py"
_SAMPLER: Final = "collector/ragtrace_collector/sampling/sampler.py"
_RESERVE: Final = "ragtrace/budget/reserve.py"
_SAMPLING_TESTS: Final = "tests/unit/collector/test_sampling.py"
_BUDGET_TESTS: Final = "tests/unit/collector/test_budget.py"
_RUN_TESTS: Final = "tests/unit/backfill/test_run_budget.py"
_PRICE_TESTS: Final = "tests/unit/budget/test_bundled_prices.py"
_EXECUTION_TESTS: Final = "tests/integration/collector/test_execution.py"

MUTANTS: Final = (
    Mutant(
        promise="sampling",
        breaks="each process draws its own answers",
        file=_POSITION,
        old='    digest = hashlib.sha256(f"ragtrace|{trace_id}".encode()).digest()\n',
        new='    digest = hashlib.sha256(f"{hash(trace_id)}".encode()).digest()\n',
        tests=(f"{_SAMPLING_TESTS}::test_every_process_and_version_draws_the_same_answers",),
    ),
    Mutant(
        promise="sampling",
        breaks="twice as much is judged as the rate says",
        file=_POSITION,
        old="return position_of(trace_id) < rate",
        new="return position_of(trace_id) < 2 * rate",
        tests=(f"{_SAMPLING_TESTS}::test_the_share_kept_is_the_rate",),
    ),
    Mutant(
        promise="sampling",
        breaks="the bits of the id decide, as in the application's own sampler",
        file=_POSITION,
        old='    digest = hashlib.sha256(f"ragtrace|{trace_id}".encode()).digest()\n',
        new="    digest = bytes.fromhex(trace_id)[8:]\n",
        tests=(f"{_SAMPLING_TESTS}::test_the_choice_is_independent_of_a_head_sampler_on_the_same_ids",),
    ),
    Mutant(
        promise="sampling",
        breaks="the probability on record leaves out what the budget lowered",
        file=_SAMPLER,
        old="return self.throttle * max(self.choice.rate * self.factor, self.floor)\n\n    @property\n"
        "    def keeps(self) -> bool:\n"
        '        """Whether this very answer is kept."""\n'
        "        return self.position < self.probability\n",
        new="return max(self.choice.rate * self.factor, self.floor)\n\n    @property\n"
        "    def keeps(self) -> bool:\n"
        '        """Whether this very answer is kept."""\n'
        "        return self.position < self.throttle * self.probability\n",
        tests=(f"{_SAMPLING_TESTS}::test_a_throttle_lowers_every_rate_and_its_probability",),
    ),
    Mutant(
        promise="sampling",
        breaks="what was brought back has a probability, as if it had one chance",
        file=_SAMPLER,
        old="sample = replace(odds.sample, rule=odds.choice.rule, rate=odds.choice.rate, probability=None)",
        new="sample = replace(odds.sample, rule=odds.choice.rule, rate=odds.choice.rate)",
        tests=(
            f"{_SAMPLING_TESTS}::test_what_was_sampled_out_is_brought_back_by_a_higher_rate_and_has_no_probability",
        ),
    ),
    Mutant(
        promise="sampling",
        breaks="the door drops what a rule would keep",
        file=_SAMPLER,
        old="return self.may_keep_all or position_of(trace_id) < self._ceiling",
        new="return position_of(trace_id) < self.plan.ratio",
        tests=(f"{_SAMPLING_TESTS}::test_the_door_drops_only_what_no_rule_could_keep",),
    ),
    Mutant(
        promise="sampling",
        breaks="spans without ids count as sampled out before they are parsed",
        file="ragtrace/traces/_otlp_envelope.py",
        old=" and bytes(8) not in together:",
        new=":",
        tests=(
            "tests/unit/traces/test_otlp.py::test_what_is_cut_out_before_parsing_is_what_would_be_left_out_after",
        ),
    ),
    Mutant(
        promise="sampling",
        breaks="a rule that drops is one among others",
        file="ragtrace/sampling/rules.py",
        old="        if dropped:\n",
        new="        if False:\n",
        tests=(f"{_SAMPLING_TESTS}::test_a_rule_that_drops_wins_over_all",),
    ),
    Mutant(
        promise="sampling",
        breaks="more answers a minute are judged than the limit says",
        file=_SAMPLER,
        old="has_room = self.limits.take(tenant)",
        new="has_room = self.limits.take(tenant) or True",
        tests=(
            "tests/unit/collector/test_sampling_windows.py::test_no_window_exceeds_a_limit_whatever_comes",
        ),
    ),
    Mutant(
        promise="sampling",
        breaks="each process judges as many answers a minute as the limit says",
        file="collector/ragtrace_collector/store/sampling.py",
        old="            yield place\n",
        new="            yield from ()\n",
        tests=(
            "tests/conformance/test_several_writers.py::test_a_limit_of_answers_is_one_for_all_processes",
        ),
    ),
    Mutant(
        promise="budget",
        breaks="a request is let through that would exceed a limit",
        file="ragtrace/budget/windows.py",
        old="exceeded_by(before + estimate, share=share))",
        new="exceeded_by(before, share=share))",
        tests=(f"{_BUDGET_TESTS}::test_what_exceeds_a_limit_is_refused_until_its_window_ends",),
    ),
    Mutant(
        promise="budget",
        breaks="a request is counted when it was answered, and not before",
        file=_RESERVE,
        old="    for window in spent:\n        table.add(budget, window, estimate)\n",
        new="",
        tests=(f"{_EXECUTION_TESTS}::test_many_at_once_do_not_pass_the_wall_together",),
    ),
    Mutant(
        promise="budget",
        breaks="a request that timed out is counted as nothing",
        file=_RESERVE,
        old="        except JudgeTimeout:\n            raise\n",
        new="        except JudgeTimeout:\n            request_cost.usage = Usage()\n            raise\n",
        tests=(f"{_EXECUTION_TESTS}::test_a_request_that_timed_out_stays_counted_as_it_was_estimated",),
    ),
    Mutant(
        promise="budget",
        breaks="a restart opens the purse",
        file="collector/ragtrace_collector/store/writers.py",
        old="    crashed = int(has_crashed)\n",
        new='    crashed = int(has_crashed)\n    db.execute("DELETE FROM spent")\n',
        tests=(f"{_EXECUTION_TESTS}::test_a_restart_does_not_open_the_purse",),
    ),
    Mutant(
        promise="budget",
        breaks="money is not counted",
        file=_RESERVE,
        old="            usd_nano=math.ceil(usd * NANO),\n",
        new="            usd_nano=0,\n",
        tests=(f"{_EXECUTION_TESTS}::test_money_is_limited_and_told",),
    ),
    Mutant(
        promise="budget",
        breaks="money may be limited where nobody knows the price",
        file=_RESERVE,
        old="if budget.limits_money and not who.computes and prices.price_of(who) is None:",
        new="if False:",
        tests=(f"{_EXECUTION_TESTS}::test_money_cannot_be_limited_where_prices_are_not_known",),
    ),
    Mutant(
        promise="budget",
        breaks="a run's request that is larger than a whole limit is made",
        file="ragtrace/budget/windows.py",
        old="if (before != Spend() or not window.ends)",
        new="if before != Spend()",
        tests=(f"{_RUN_TESTS}::test_a_request_larger_than_a_whole_limit_of_a_run_is_never_made",),
    ),
    Mutant(
        promise="budget",
        breaks="a model whose name resembles another's has its price",
        file="ragtrace/budget/_bundled_prices.py",
        old="            return name == model\n",
        new="            return model.startswith(name)\n",
        tests=(f"{_PRICE_TESTS}::test_a_price_that_would_be_a_guess_is_unknown",),
    ),
    Mutant(
        promise="budget",
        breaks="a request with a long prompt is counted as a short one",
        file="ragtrace/budget/prices.py",
        old="rates = long if long and usage.calls == 1 and usage.input_tokens > long.over else self",
        new="rates = self",
        tests=(f"{_PRICE_TESTS}::test_a_request_with_a_long_prompt_costs_what_the_provider_takes_for_it",),
    ),
)
