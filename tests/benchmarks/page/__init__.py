"""The page of docs/performance.md, from the committed history."""
