"""A SQLite store whose rows are logged: the log is the truth, and the file a copy of it.

See docs/adr/0021-a-shard-is-a-collector-whose-state-is-logged.md.
"""
