"""Assemble: spans become traces, and traces give the answers in them."""
