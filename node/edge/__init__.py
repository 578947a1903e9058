"""The edge of a node: where events come from (traces, rates, brokers) and where deliveries go."""
