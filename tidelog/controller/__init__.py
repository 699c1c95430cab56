"""The controller's core: commands, decisions, metadata records, and the cluster image that records make.

It is pure and synchronous, as `tidelog.groups` is: a decision turns an image and a command into records and an answer,
and `apply` turns an image and a record into the next image. Its shell is `tidelog.broker.controller`.
"""
