"""The broker: partition runtimes, controller, HTTP listener, and the one place that wires them."""
