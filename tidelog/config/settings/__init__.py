"""Settings of a broker, one file per subject; `config/schema.py` combines them."""
