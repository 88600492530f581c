"""Other tools' metrics under their rules: their scoring of ragtrace's verdicts, or their own judge calls."""
