"""Settings: what a broker and a topic can be told, under Kafka's names, validated once and frozen.

`schema` declares every setting with its default, bounds, unit and documentation, the broker's by way of the files of
`settings`; `load` puts a broker's together from its sources; `topics` does so for one topic; `describe` shows them with
where each value came from; `reference` renders `docs/config.md`. Only `load` touches the outside world, and cores may
import `schema` but never `load`.
"""
