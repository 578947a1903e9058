"""The bytes of rules, messages and event rows."""
