"""Conversations judged as a whole: the turns of a session, what they say against each other, and its span."""
