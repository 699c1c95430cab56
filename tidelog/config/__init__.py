"""Settings of brokers and topics, under Kafka's names, validated once and then immutable.

`schema` declares every setting with its default, bounds, unit and documentation, those of brokers in the files of
`settings`. `load` reads a broker's settings from their sources, `topics` computes those of one topic, `describe` lists
them with the source of each value, `reference` renders `docs/config.md`. Only `load` does input and output; cores may
import `schema` but never `load`.
"""
