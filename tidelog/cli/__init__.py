"""The `tidelog` command: one module per subcommand, imported only if that subcommand was typed.

Commands are thin. They parse the command line, call the Python API (`AdminClient`, `Producer`, `Consumer`,
`tidelog.broker.assembly`), and print the result: a table, or one JSON document. `main` decides what is imported and the
meaning of exit statuses; only `terminal` writes.
"""
