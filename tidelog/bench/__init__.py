"""Benchmarks of a broker, running or started for the purpose, through the same clients that users have.

Each workload is a coroutine function from options to a `Result` (`result.run` runs it, `history.append_history`
stores the result).
"""
