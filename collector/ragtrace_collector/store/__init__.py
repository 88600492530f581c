"""The work store: a port, with one adapter for each storage engine."""
