"""REST consumers: consumer instances in the sense of Confluent's REST Proxy, for clients that speak only HTTP.

An *instance* is kept by the broker that coordinates its consumer group. Its settings, subscription and assignment are a
record in `__consumer_offsets`; its positions are in that broker's memory. Any broker accepts a request for any instance
and forwards it (`RestConsumers.ask`) as one message to the coordinator's broker, which looks the instance up in its
`Registry`.
"""
