"""Web: what all listeners share, receivers and pages: HTTP server, tokens, TLS, host names, error answers."""
