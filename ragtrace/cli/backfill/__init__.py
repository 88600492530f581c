"""``ragtrace backfill``: judge the answers in stored traces."""

from ragtrace.cli.backfill.command import backfill
