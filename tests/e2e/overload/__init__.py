"""Three real brokers are asked for more than they can do; `python -m tests.e2e.overload` says what they did then."""
