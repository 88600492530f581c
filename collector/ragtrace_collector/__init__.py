"""The collector: receives spans, judges the answers in them, and writes the verdicts back."""
