"""The record that benchmarks judge, and a server that answers about it."""
