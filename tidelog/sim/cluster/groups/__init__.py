"""Consumer groups in a simulated cluster: their members, what befalls these, and the rules of a group."""
