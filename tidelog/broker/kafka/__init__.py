"""The listener that speaks Kafka's protocol, for the programs that people already have.

Here live its connections, its codecs, one file for each family of calls, its limits and its metrics. It sees of the
broker what HTTP sees, the room `face`; its frames are cut from streams by an adapter that whoever opens it gives to it.
"""
