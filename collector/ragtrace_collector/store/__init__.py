"""The work store: one port, one adapter a storage engine."""
