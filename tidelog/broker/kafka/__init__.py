"""The listener that speaks Kafka's binary protocol, so that existing Kafka clients work with this broker.

This package holds its connections, its message codecs, the handlers of each family of requests, its limits and its
metrics. It reaches the broker through `broker.face`, as the HTTP listeners do. The adapter that cuts a TCP stream into
frames is passed in by whoever opens the listener.
"""
