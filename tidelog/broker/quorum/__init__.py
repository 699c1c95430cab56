"""The metadata log at work: engine, election, disk and network put together, the same way in each broker."""
