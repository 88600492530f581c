"""The index of judged answers in SQLite: rows without content, and hourly sums that overviews read.

`ragtrace.answers.index.writes` keeps it, inside the transactions of whoever owns the file, and
`ragtrace.answers.index.reading.SqliteAnswerIndex` searches it.
"""
