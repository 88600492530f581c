"""Who may send and read, and what is whose."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_ACCESS: Final = "collector/ragtrace_collector/web/tokens.py"
_PAGES: Final = "collector/ragtrace_collector/web/server.py"
_TLS: Final = "collector/ragtrace_collector/web/certificate.py"
_ACCESS_TESTS: Final = "tests/integration/collector/test_access.py"
_TLS_TESTS: Final = "tests/integration/collector/test_tls.py"
_TENANTS_TESTS: Final = "tests/attack/test_tenants.py"

MUTANTS: Final = (
    Mutant(
        promise="tokens",
        breaks="a token is known by the first byte of its digest",
        file=_ACCESS,
        old="if hmac.compare_digest(sender.grant.digest, digest):",
        new="if sender.grant.digest[:1] == digest[:1]:",
        tests=(f"{_ACCESS_TESTS}::test_a_token_is_known_by_every_byte_of_its_digest",),
    ),
    Mutant(
        promise="tokens",
        breaks="whoever has a token may do everything",
        file=_ACCESS,
        old="if permission not in sender.grant.may:",
        new="if not sender.grant.may:",
        tests=(f"{_ACCESS_TESTS}::test_a_token_may_do_what_it_was_made_for_alone",),
    ),
    Mutant(
        promise="tokens",
        breaks="a token that was taken out of the configuration goes on working",
        file=_ACCESS,
        old="kept = [sender for sender in self._senders if sender.grant in grants]",
        new="kept = list(self._senders)",
        tests=(f"{_ACCESS_TESTS}::test_tokens_are_changed_while_the_collector_runs",),
    ),
    Mutant(
        promise="TLS",
        breaks="HTTP lets in clients without a certificate of the authority",
        file=_TLS,
        old="context.verify_mode = ssl.CERT_REQUIRED",
        new="context.verify_mode = ssl.CERT_OPTIONAL",
        tests=(f"{_TLS_TESTS}::test_clients_without_a_certificate_of_the_authority_do_not_get_in",),
    ),
    Mutant(
        promise="tenants",
        breaks="traces are known by their ids alone, whoever sends",
        file="collector/ragtrace_collector/store/trace_key.py",
        old='return f"{trace_id}{BEHIND_ID}{tenant}" if tenant else trace_id',
        new="return trace_id",
        tests=(f"{_TENANTS_TESTS}::test_spans_of_two_tenants_under_one_trace_id_are_kept_apart",),
    ),
    Mutant(
        promise="tenants",
        breaks="a tenant's token reads the answers of all tenants",
        file=_PAGES,
        old="request.state.tenant = sender.tenant if sender else None",
        new="request.state.tenant = None",
        tests=(f"{_TENANTS_TESTS}::test_a_token_that_reads_for_a_tenant_reads_nothing_of_another",),
    ),
    Mutant(
        promise="tenants",
        breaks="a search for words opens the answers of all tenants",
        file="collector/ragtrace_collector/ui/answers.py",
        old="        without_text = replace(chosen, text=None)\n",
        new="        without_text = AnswerFilter()\n",
        tests=(
            "tests/integration/collector/test_ui_access.py::test_a_search_for_words_opens_the_tenants_own_answers_alone",
        ),
    ),
    Mutant(
        promise="tenants",
        breaks="spans of other tenants are shown",
        file="ragtrace/answers/opening.py",
        old="        if owner == tenant or (\n",
        new="        if owner or (\n",
        tests=(
            "tests/unit/answers/test_opening.py::test_spans_of_another_tenant_under_the_same_ids_are_left_out",
        ),
    ),
)
