"""The broker: partition runtimes, controller, HTTP listener, and the assembly that wires them."""
