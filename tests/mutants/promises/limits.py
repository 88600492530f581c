"""What strangers can make the collector hold, and whether it says that it takes spans."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_GZIP: Final = "collector/ragtrace_collector/receive/_gzip.py"
_HTTP: Final = "collector/ragtrace_collector/receive/http.py"
_GRPC: Final = "collector/ragtrace_collector/receive/grpc.py"
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
        breaks="a gzip bomb is unfolded in one piece",
        file=_GZIP,
        old="step = inflate.decompress(rest, _STEP_BYTES)",
        new="step = inflate.decompress(rest)",
        tests=(f"{_RECEIVERS_TESTS}::test_a_gzip_bomb_is_refused_before_it_unfolds",),
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
        breaks="what a back end answers may be of any size",
        file="ragtrace/backends/otlp_sinks.py",
        old="LONGEST_BODY: Final = 1 << 20",
        new="LONGEST_BODY: Final = 1 << 40",
        tests=("tests/attack/test_unreadable_answers.py::test_an_unreadable_yes_is_told_as_what_it_is",),
    ),
    Mutant(
        promise="limits",
        breaks="a yes over gRPC that is too large is taken for a refusal",
        file="ragtrace/backends/otlp_sinks.py",
        old='        return "CLIENT:" in details or (',
        new='        return "-" in details or (',
        tests=(f"{_GRPC_SIZES}::test_a_yes_that_is_too_large_is_a_yes_that_nobody_can_read",),
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
)
