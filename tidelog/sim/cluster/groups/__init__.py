"""Consumer groups in a simulated cluster: shipped members, what befalls them, and what must be true."""
