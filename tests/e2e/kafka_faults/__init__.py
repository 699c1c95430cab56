"""Kafka's clients write and read while brokers are killed, paused and cut off: `make kafka-faults`."""
