"""Ledger: what happened to every answer."""
