"""The integration tests of other clients, run against this tree."""
