"""The settings of a broker, a file for each of their subjects; `config/schema.py` puts them together."""
