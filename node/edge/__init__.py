"""The edge of a node: adapters for sources (traces, rates, brokers, programs) and for sinks."""
