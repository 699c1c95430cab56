"""Consumer groups in a simulated cluster: their members, the disturbances of members, and the rules that a group must
keep."""
