"""Headwater: complex event processing inside the network that produces the events."""
