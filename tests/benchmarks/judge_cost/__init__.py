"""What judging a record costs, beside ragas and deepeval: calls, depth, tokens and client CPU."""
