"""Service: builds the stages, starts, reloads and stops them."""
