"""Evaluate: workers evaluate queued answers, retry them, or end them with a reason."""
