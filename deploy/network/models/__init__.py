"""The models of network files (docs/guide/networks.md), one module for each section; they also give the JSON schema."""
