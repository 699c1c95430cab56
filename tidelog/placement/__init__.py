"""Which brokers hold a partition: pure functions from brokers and counts to assignments."""
