"""tidelog: a Kafka-style message broker in asyncio Python.

The import root re-exports nothing: `from tidelog.producer import Producer` says which half of the
system a program leans on, and keeps `import tidelog` free of cost.
"""

__version__ = "0.2.0"
