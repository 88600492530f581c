"""Who may send and read, and what is whose."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_ACCESS: Final = "collector/ragtrace_collector/web/tokens.py"
_HTTP: Final = "collector/ragtrace_collector/receive/http.py"
_PAGES: Final = "collector/ragtrace_collector/web/pages.py"
_GRPC: Final = "collector/ragtrace_collector/receive/grpc.py"
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
        breaks="a token is known by all but the last byte of its digest",
        file=_ACCESS,
        old="if hmac.compare_digest(sender.grant.digest, digest):",
        new="if hmac.compare_digest(sender.grant.digest[:-1], digest[:-1]):",
        tests=(f"{_ACCESS_TESTS}::test_a_token_is_known_by_every_byte_of_its_digest",),
    ),
    Mutant(
        promise="tokens",
        breaks="who brings an unknown token is taken for the first sender",
        file=_ACCESS,
        old="        found = None\n",
        new="        found: Sender | None = self._senders[0]\n",
        tests=(f"{_ACCESS_TESTS}::test_who_has_no_token_sends_nothing",),
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
        breaks="gRPC asks for no token",
        file=_GRPC,
        old='sender = self._access.admit(_authorization(handler_call_details), "send")',
        new="sender = None",
        tests=(f"{_ACCESS_TESTS}::test_who_has_no_token_sends_nothing",),
    ),
    Mutant(
        promise="tokens",
        breaks="pages ask for no token",
        file=_PAGES,
        old='sender = access.admit(request.headers.get("authorization"), "read")',
        new="sender = None",
        tests=(
            "tests/integration/collector/test_operations.py::test_pages_with_numbers_ask_for_a_token_and_probes_do_not",
        ),
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
        promise="tokens",
        breaks="an allowance is never used up",
        file=_ACCESS,
        old="            self._left[what] -= used[what]\n",
        new="            self._left[what] -= 0 * used[what]\n",
        tests=(f"{_ACCESS_TESTS}::test_an_allowance_that_is_used_up_is_answered_with_the_time_to_wait",),
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
        promise="TLS",
        breaks="gRPC lets in clients without a certificate of the authority",
        file=_TLS,
        old="require_client_authentication=self._authority is not None,",
        new="require_client_authentication=False,",
        tests=(f"{_TLS_TESTS}::test_clients_without_a_certificate_of_the_authority_do_not_get_in",),
    ),
    Mutant(
        promise="TLS",
        breaks="an address that everyone reaches may be open to everyone",
        file="collector/ragtrace_collector/web/auth.py",
        old="    if not config.receive.insecure:\n",
        new="    if False:\n",
        tests=(f"{_TLS_TESTS}::test_an_address_that_other_machines_reach_is_not_open_by_accident",),
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
        breaks="a tenant finds the traces of all tenants",
        file="collector/ragtrace_collector/store/reports.py",
        old="            if tenant is not None:\n",
        new="            if False:\n",
        tests=(
            "tests/conformance/test_store_reports.py::test_traces_are_found_by_how_they_begin_and_by_tenant",
        ),
    ),
    Mutant(
        promise="tenants",
        breaks="a sender may claim another tenant on its spans",
        file="collector/ragtrace_collector/receive/tenants.py",
        old="    for attributes in members:\n",
        new="    for attributes in ():\n",
        tests=(f"{_ACCESS_TESTS}::test_a_sender_cannot_claim_another_tenant",),
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
        breaks="a tenant's token reads the metrics, which count everybody",
        file=_PAGES,
        old="if of_all and request.state.tenant is not None:",
        new="if False:",
        tests=(f"{_TENANTS_TESTS}::test_a_token_that_reads_for_a_tenant_reads_nothing_of_another",),
    ),
    Mutant(
        promise="tenants",
        breaks="carriers of two tenants' answers with the same ids are one",
        file="ragtrace/traces/attach.py",
        old='owner = (f"tenant={tenant}",) if tenant else ()',
        new="owner = ()",
        tests=(f"{_TENANTS_TESTS}::test_two_tenants_with_the_same_ids_get_a_carrier_each",),
    ),
    Mutant(
        promise="tenants",
        breaks="a search for words opens the answers of all tenants",
        file="collector/ragtrace_collector/ui/_text_search.py",
        old="        without_text = replace(chosen, text=None)\n",
        new="        without_text = AnswerFilter()\n",
        tests=(
            "tests/integration/collector/test_ui_access.py::test_a_search_for_words_opens_the_tenants_own_answers_alone",
        ),
    ),
    Mutant(
        promise="tenants",
        breaks="content of nobody is shown to a tenant that did not send it",
        file="ragtrace/answers/opening.py",
        old="    return record if record and content_sha256(record) in judged else None\n",
        new="    return record if judged else None\n",
        tests=("tests/unit/answers/test_opening.py::test_a_tenant_is_shown_nothing_that_another_wrote",),
    ),
    Mutant(
        promise="tenants",
        breaks="evaluations of nobody are shown to any tenant",
        file="ragtrace/answers/opening.py",
        old="as_carrier(span).span_id in evaluations\n",
        new="as_carrier(span).span_id\n",
        tests=("tests/unit/answers/test_opening.py::test_a_tenant_is_shown_nothing_that_another_wrote",),
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
    Mutant(
        promise="tenants",
        breaks="a low score has answers of other tenants judged",
        file="collector/ragtrace_collector/sampling/follow_up.py",
        old="_key(of_token, tenant, relation, value)",
        new="_key(relation, value)",
        tests=(
            "tests/attack/test_tenants.py::test_a_low_score_of_one_tenant_has_no_answer_of_another_judged",
        ),
    ),
)
