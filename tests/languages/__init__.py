"""Rule text: what it parses to, how it is printed, and every message about mistakes."""
