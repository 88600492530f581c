"""The key of a trace in the collector: its id and the tenant of the sender's token.

Anyone who knows a trace id can send spans with it. If the id alone were the key, a span of another tenant
could replace an answer, or end a wait. So one id under two tenants is two traces, from first span to verdict.
"""

from __future__ import annotations

from typing import Final

BEHIND_ID: Final = "@"
"""Never part of a trace id."""
TRACE_ID_LENGTH: Final = 32
"""Hexadecimal digits."""


def trace_key(trace_id: str, tenant: str | None) -> str:
    """Return the key of a trace; without a tenant, its id."""
    return f"{trace_id}{BEHIND_ID}{tenant}" if tenant else trace_id


def trace_id_of(key: str) -> str:
    """Return the trace id that the application, the judge's trace and back ends use."""
    return key.partition(BEHIND_ID)[0]


def tenant_of(key: str) -> str:
    """Return the tenant whose token sent the trace; empty if there is none."""
    return key.partition(BEHIND_ID)[2]
