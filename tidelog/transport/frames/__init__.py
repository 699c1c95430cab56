"""The client side of Kafka's binary protocol, by which tidelog's own clients send and fetch records."""
