"""Files: private, durable, and in the place where ragtrace keeps its state."""
