"""Where answers are opened and found without a collector: stores, back ends, files and reports."""
