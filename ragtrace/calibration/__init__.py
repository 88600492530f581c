"""Measuring a judge against human labels, and what follows from it: which form to ask in, where to cut."""
