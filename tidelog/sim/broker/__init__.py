"""The simulator of one shipped broker with its clients, on a machine that crashes."""
