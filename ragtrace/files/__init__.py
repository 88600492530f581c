"""Private files, durable files, and ragtrace's state folder."""
