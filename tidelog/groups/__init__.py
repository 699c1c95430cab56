"""Consumer groups: pure functions and values. Who may own what, and where a group stands."""
