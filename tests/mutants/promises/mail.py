"""What a shard of a cluster sends another counts once, and is sent if its cause is stored."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_COLLECTOR: Final = "collector/ragtrace_collector"
_STORES: Final = "tests/conformance/test_store_mail.py"

MUTANTS: Final = (
    Mutant(
        promise="mail",
        breaks="a turn that comes twice opens its session again",
        file=f"{_COLLECTOR}/store/_mail.py",
        old="    if not noted.rowcount:\n",
        new="    if noted is None:\n",
        tests=(f"{_STORES}::test_a_turn_from_another_shard_is_kept_in_its_session_once",),
    ),
    Mutant(
        promise="mail",
        breaks="answers that are equal count once",
        file=f"{_COLLECTOR}/deliver/mail.py",
        old="to=to, sender=(sender, answers[-1].id), answers=",
        new="to=to, answers=",
        tests=("tests/unit/collector/test_mail.py::test_equal_answers_that_wait_twice_are_two_mails",),
    ),
    Mutant(
        promise="mail",
        breaks="mail is never forgotten",
        file=f"{_COLLECTOR}/store/_mail.py",
        old="WHERE received_ns < ? ORDER",
        new="WHERE received_ns < 0 * ? ORDER",
        tests=(f"{_STORES}::test_received_mail_is_recognized_until_it_is_forgotten",),
    ),
    Mutant(
        promise="mail",
        breaks="a judged turn of another shard's session is not sent",
        file=f"{_COLLECTOR}/store/sqlite.py",
        old="            if mail:\n",
        new="            if not mail:\n",
        tests=(f"{_STORES}::test_mail_of_an_answer_waits_in_the_outbox_and_is_no_carrier_of_it",),
    ),
)
