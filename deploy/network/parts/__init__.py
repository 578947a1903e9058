"""What a network file may hold (docs/guide/networks.md), one module for each section; its JSON schema is made from
these models."""
