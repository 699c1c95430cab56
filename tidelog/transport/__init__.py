"""Network transport: HTTP sessions of clients, frame connections between brokers, and the errors of both."""
