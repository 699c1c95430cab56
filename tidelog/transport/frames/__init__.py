"""Records by the frames of Kafka's protocol, between a client of tidelog and a broker."""
