"""The HTTP face of a broker: REST v2 and v3 as Confluent's proxy has them, stateless reads, raw record batches.

One way through it, for every request: `connection` admits the client, `router` finds the entry of the one table in
`routes`, `edge` runs its handler and turns whatever happens into an answer. Handlers get a `Context` (the face of the
broker, and the admission and bounds of this listener) and a `Call` (one request), and know nothing about sockets. Only
this package imports aiohttp on the server side.
"""
