"""The controller's pure part: commands, decisions, metadata records, and the cluster image that the records yield.

It is synchronous and has no I/O, as `tidelog.groups`: a decision turns an image and a command into records and an
answer, and `apply` turns an image and a record into the next image. The code with I/O is `tidelog.broker.controller`.
"""
