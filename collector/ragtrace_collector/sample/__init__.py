"""Sample: which answers are evaluated."""
