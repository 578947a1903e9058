"""What all parts of Headwater share: events, patterns, rule languages, messages, links, the journal and its formats."""
