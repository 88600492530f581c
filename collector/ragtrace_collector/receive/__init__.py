"""Receive: requests come in over HTTP and gRPC, and their spans become durable."""
