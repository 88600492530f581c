"""Other tools' metrics, under their own rules: as scorings of our verdicts, or with their own calls."""
