"""Judge: the evaluator of the live configuration, and the guards in front of its endpoints."""
