"""An app of Django whose rows come from a topic."""
