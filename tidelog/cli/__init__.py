"""The `tidelog` command: one module a subcommand, imported only when it is the one that was typed.

Commands are thin. They read the command line, call what a Python program would call (`AdminClient`, `Producer`,
`Consumer`, `tidelog.broker.assembly`), and show the outcome: a table for people, one JSON document for programs.
`main` decides what is imported and what an exit status means; `terminal` alone writes.
"""
