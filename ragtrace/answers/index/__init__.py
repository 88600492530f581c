"""The index of judged answers in SQL: rows without content, and sums of hours and days that overviews read.

`ragtrace.answers.index.writes` keeps it, inside the transactions of whoever owns the tables, and
`ragtrace.answers.index.reading.AnswerIndex` searches it.
"""
