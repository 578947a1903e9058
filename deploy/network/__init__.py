"""Network files: YAML with places, the sections of a network file, their models and their JSON schema."""
