"""REST consumers: consumers whose memory is a broker's, for clients that have nothing but HTTP.

An *instance* lives with its group's coordinator. What it was created with, and what it reads, is a record of the group;
where it is in its partitions is memory of the coordinator's broker. Any broker takes any request of any instance and
hands it on (`RestConsumers.ask`), as one message to the coordinator's broker, which keeps the instances (`registry`).
"""
