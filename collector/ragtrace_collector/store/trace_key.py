"""What the collector knows a trace by: its id, and the tenant whose token brought it.

Who knows a trace id can send spans with it. Were the id alone the key, another tenant's span could take the
place of an answer, or end a wait. So one id under two tenants is two traces, from first span to verdict.
"""

from __future__ import annotations

from typing import Final

BEHIND_ID: Final = "@"
"""No trace id has it."""


def trace_key(trace_id: str, tenant: str | None) -> str:
    """Return the key of a trace; without a tenant, its id."""
    return f"{trace_id}{BEHIND_ID}{tenant}" if tenant else trace_id


def trace_id_of(key: str) -> str:
    """Return the id by which the application, the judge's trace and back ends know the trace."""
    return key.partition(BEHIND_ID)[0]


def tenant_of(key: str) -> str:
    """Return the tenant whose token brought the trace; empty if it was none's."""
    return key.partition(BEHIND_ID)[2]
