"""Consumer groups on a broker: coordinators of what it leads of `__consumer_offsets`, and the way to the others."""
