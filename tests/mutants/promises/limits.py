"""What strangers can make the collector hold, and whether it says that it takes spans."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_GZIP: Final = "collector/ragtrace_collector/receive/_gzip.py"
_HTTP: Final = "collector/ragtrace_collector/receive/http.py"
_GRPC: Final = "collector/ragtrace_collector/receive/grpc.py"
_CONNECTION: Final = "collector/ragtrace_collector/web/_connection.py"
_VITALS: Final = "collector/ragtrace_collector/operations/vitals.py"
_RECEIVERS_TESTS: Final = "tests/integration/collector/test_receivers.py"
_CONNECTIONS_TESTS: Final = "tests/integration/collector/test_connections.py"
_OPERATIONS_TESTS: Final = "tests/integration/collector/test_operations.py"
_GRPC_SIZES: Final = "tests/attack/test_grpc_sizes.py"

MUTANTS: Final = (
    Mutant(
        promise="limits",
        breaks="a body over HTTP may be of any size",
        file=_HTTP,
        old="        if len(body) + len(piece) > limit:\n",
        new="        if False:\n",
        tests=(f"{_RECEIVERS_TESTS}::test_http_refuses_as_otlp_prescribes",),
    ),
    Mutant(
        promise="limits",
        breaks="a body over HTTP may be of any size, as fuzzing sees it",
        file=_HTTP,
        old="        if len(body) + len(piece) > limit:\n",
        new="        if False:\n",
        tests=("tests/fuzz/test_receivers_under_fire.py",),
        is_slow=True,
    ),
    Mutant(
        promise="limits",
        breaks="a message over gRPC may be of any size",
        file=_GRPC,
        old='("grpc.max_receive_message_length", max_message_bytes),',
        new='("grpc.max_receive_message_length", -1),',
        tests=(f"{_RECEIVERS_TESTS}::test_grpc_refuses_twenty_megabytes",),
    ),
    Mutant(
        promise="limits",
        breaks="a gzip bomb is unfolded in one piece",
        file=_GZIP,
        old="step = inflate.decompress(rest, _STEP_BYTES)",
        new="step = inflate.decompress(rest)",
        tests=(f"{_RECEIVERS_TESTS}::test_a_gzip_bomb_is_refused_before_it_unfolds",),
    ),
    Mutant(
        promise="limits",
        breaks="gzip that unfolds to nothing may go on without end",
        file=_GZIP,
        old="            if packed > limit:\n",
        new="            if False:\n",
        tests=(f"{_RECEIVERS_TESTS}::test_gzip_that_says_nothing_without_end_is_refused",),
    ),
    Mutant(
        promise="limits",
        breaks="bodies under way over HTTP take no room",
        file=_HTTP,
        old="        await place.reserve(len(piece))\n",
        new="",
        tests=(f"{_RECEIVERS_TESTS}::test_what_is_under_way_is_bounded_however_many_send",),
        is_slow=True,
        hangs=True,
    ),
    Mutant(
        promise="limits",
        breaks="one peer may have any number of calls over gRPC",
        file=_GRPC,
        old="        if self._calls[who] >= _CALLS_A_PEER:\n",
        new="        if False:\n",
        tests=("tests/attack/test_idle_peers.py::test_one_peer_has_so_many_calls_at_once_and_no_more",),
    ),
    Mutant(
        promise="limits",
        breaks="headers may be of any length",
        file=_CONNECTION,
        old="_MAX_HEAD_BYTES: Final = 16 << 10",
        new="_MAX_HEAD_BYTES: Final = 16 << 30",
        tests=(f"{_CONNECTIONS_TESTS}::test_headers_that_come_whole_are_bounded_too",),
    ),
    Mutant(
        promise="limits",
        breaks="a sender may send any number of requests before the first is answered",
        file=_CONNECTION,
        old="        if self._is_reading or self._is_answering:\n",
        new="        if False:\n",
        tests=(f"{_CONNECTIONS_TESTS}::test_who_does_not_wait_for_an_answer_gets_that_one_alone",),
    ),
    Mutant(
        promise="limits",
        breaks="one address may have any number of connections",
        file="collector/ragtrace_collector/web/connections.py",
        old="        if len(self._unauthenticated[peer]) > _A_PEER:\n",
        new="        if False:\n",
        tests=(
            f"{_CONNECTIONS_TESTS}::test_of_too_many_connections_the_one_that_is_idle_for_longest_is_hung_up_on",
        ),
        is_slow=True,
        hangs=True,
    ),
    Mutant(
        promise="limits",
        breaks="a trace may have any number of spans",
        file="collector/ragtrace_collector/assemble/open_traces.py",
        old="return not news or known + news <= self._policy.max_spans_per_trace",
        new="return True",
        tests=(
            "tests/integration/collector/test_readiness.py::test_a_trace_of_too_many_spans_is_not_judged_on_a_part_of_them",
        ),
    ),
    Mutant(
        promise="limits",
        breaks="a span may have any number of attributes",
        file="collector/ragtrace_collector/receive/span_limits.py",
        old="            len(span.attributes) > self.attributes\n            or",
        new="           ",
        tests=(
            "tests/integration/collector/test_oversized.py::test_a_trace_with_an_oversized_span_is_passed_on_and_not_judged",
        ),
    ),
    Mutant(
        promise="limits",
        breaks="what a back end answers may be of any size",
        file="ragtrace/backends/_http_sink.py",
        old="LONGEST_BODY: Final = 1 << 20",
        new="LONGEST_BODY: Final = 1 << 40",
        tests=("tests/attack/test_unreadable_answers.py::test_an_unreadable_yes_is_told_as_what_it_is",),
    ),
    Mutant(
        promise="limits",
        breaks="what an HTTP client reads may be of any size",
        file="ragtrace/http/client.py",
        old="        response.stream = kind(response.stream, coding, most_bytes)",
        new="        response.stream = kind(response.stream, coding, 1 << 40)",
        tests=("tests/unit/http/test_client.py::test_a_reply_over_the_limit_ends_there_however_it_is_read",),
    ),
    Mutant(
        promise="limits",
        breaks="a stream of Jaeger's over gRPC may be of any size",
        file="ragtrace/backends/_jaeger_grpc.py",
        old="                left -= len(part)\n",
        new="                left -= 0\n",
        tests=(f"{_GRPC_SIZES}::test_messages_together_are_bounded",),
    ),
    Mutant(
        promise="limits",
        breaks="a yes over gRPC that is too large is taken for a refusal",
        file="ragtrace/backends/otlp_grpc.py",
        old='        return "CLIENT:" in details or (',
        new='        return "-" in details or (',
        tests=(f"{_GRPC_SIZES}::test_a_yes_that_is_too_large_is_a_yes_that_nobody_can_read",),
    ),
    Mutant(
        promise="limits",
        breaks="the store may grow without end",
        file="collector/ragtrace_collector/store/store.py",
        old="return self._database.used_bytes(db) <= int(share * self._max_bytes)",
        new="return True",
        tests=("tests/conformance/test_work_store.py::test_a_full_store_keeps_nothing_of_the_request",),
    ),
    Mutant(
        promise="limits",
        breaks="a trace may take any time of the CPU",
        file="collector/ragtrace_collector/sample/stage.py",
        old="if answers.cpu_ns + time.thread_time_ns() - begun_ns > nanoseconds(live.config.assemble.max_cpu):",
        new="if False:",
        tests=(
            "tests/attack/test_poison_traces.py::test_a_trace_that_takes_too_much_cpu_is_set_aside_for_later_processes_too",
        ),
    ),
    Mutant(
        promise="limits",
        breaks="any number of empty parts is parsed, whatever it costs",
        file="ragtrace/traces/otlp.py",
        old="    if is_flood_on_the_wire(data):\n",
        new="    if False:\n",
        tests=("tests/unit/traces/test_otlp.py::test_flood_of_empty_parts_is_refused",),
    ),
    Mutant(
        promise="readiness",
        breaks="/readyz says ready whatever the store says",
        file=_VITALS,
        old="        trouble = await self._store_trouble()\n",
        new="        trouble = None\n",
        tests=(
            f"{_OPERATIONS_TESTS}::test_a_store_that_takes_nothing_is_told_as_the_reason_for_not_being_ready",
        ),
    ),
    Mutant(
        promise="readiness",
        breaks="/readyz says ready while the collector stops",
        file=_VITALS,
        old="reasons = [str(self.phase)] if self.phase is not Phase.SERVING else []",
        new="reasons: list[str] = []",
        tests=(f"{_OPERATIONS_TESTS}::test_while_it_drains_its_pages_say_that_it_stops",),
        is_slow=True,
        hangs=True,
    ),
    Mutant(
        promise="readiness",
        breaks="/readyz answers 200 whatever it says",
        file="collector/ragtrace_collector/operations/pages.py",
        old="return JsonPage(told, status_code=200 if state.is_ready else 503)",
        new="return JsonPage(told, status_code=200)",
        tests=(
            f"{_OPERATIONS_TESTS}::test_a_store_that_takes_nothing_is_told_as_the_reason_for_not_being_ready",
        ),
    ),
)
