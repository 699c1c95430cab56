"""How bytes get to brokers and back: HTTP sessions for clients, and the table of errors that cross the wire."""
