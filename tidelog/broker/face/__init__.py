"""The face of a broker: all that a listener may ask of it, whatever protocol its clients speak.

Here live the named parts that a listener is given, the values that go in and come out, and what every listener has in
common: admission, budgets, waits, who may do what. Nothing here knows HTTP, or any other protocol of clients. A
listener imports this room and nothing else of the broker; the contracts "A listener sees the broker's face" and "The
face knows no protocol" in `pyproject.toml` hold it.
"""
