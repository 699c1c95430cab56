"""The broker as its listeners see it, whatever protocol their clients speak: `BrokerFace` and its parts.

Here are the parts that a listener is given, the values that they take and return, and what all listeners have in
common: admission control, memory budgets, waits, authentication and authorization. Nothing here knows HTTP or any other
client protocol. A listener imports this package and nothing else of the broker; the import contracts "A listener sees
the broker's face" and "The face knows no protocol" in `pyproject.toml` enforce it.
"""
