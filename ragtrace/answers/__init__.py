"""Judged answers as people look at them: rows without content, and one answer opened with its content."""
