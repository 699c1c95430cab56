"""The way from a request to the leader of its partition: leader look-up, forwarding, fan-out to many leaders."""
