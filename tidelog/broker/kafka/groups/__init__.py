"""Handlers of the consumer group requests, one file per family.

A handler takes the listener's `Parts`, the call, its decoded request and the caller, and returns nested dicts with the
field names of the library kio. ACLs and limits are those of HTTP: `Read` on the group for members, `Describe` and
`Delete` for operators, and a right on each topic named.
"""
