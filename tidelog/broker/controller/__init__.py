"""The controller: decides what the cluster is (topics, brokers, leaders), and keeps the decisions in a metadata log."""
