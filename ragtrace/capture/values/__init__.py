"""Chunks, messages and answers, in whatever form an application has them."""
