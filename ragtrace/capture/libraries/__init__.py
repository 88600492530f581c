"""Libraries that the application imports: who writes their spans, turned on as they are imported."""
