"""The benchmarks that have a history: each module's ``measure`` returns ratios to a named alternative."""
