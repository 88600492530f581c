"""The receivers: one file a protocol."""
