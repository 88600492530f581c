"""Sessions: the turns of a conversation, judged together once it is over."""
