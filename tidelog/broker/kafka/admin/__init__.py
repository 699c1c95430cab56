"""Handlers of Kafka's admin requests: one function per request type, from a parsed request to an answer tree.

An answer tree is a dictionary of plain values under the field names of the library `kio`, which has Kafka's message
definitions. Changes go to the controller by the same commands as over HTTP, with the same ACL checks, quotas and audit
log lines. Each item of a request (a topic, an ACL) has its own error code, and a bad item does not fail the others.
"""
