"""Any partition at its leader, whatever its commit protocol: mailbox, proposals, handle, replica logs, throttle."""
