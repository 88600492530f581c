"""What was measured before, and whether what is measured now is worse."""
