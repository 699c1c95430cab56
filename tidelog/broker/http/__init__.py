"""The HTTP listener of a broker: REST v2 and v3 as in Confluent's REST Proxy, stateless reads, and raw record batches.

Every request takes the same way: `connection` admits the client, `router` finds the entry of the route table in
`routes`, `edge` runs its handler and turns the result or error into an answer. Handlers get a `Context` (the broker's
parts, and the admission control and bounds of this listener) and a `Call` (one request), and know nothing about
sockets. Only this package imports aiohttp on the server side.
"""
