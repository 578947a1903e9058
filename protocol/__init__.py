"""What everything else speaks: events, patterns, rules and their languages, encodings."""
