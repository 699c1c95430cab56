"""Consumer groups on a broker: the coordinators of the partitions of `__consumer_offsets` that it leads, and the
routing of requests to the coordinators on other brokers."""
