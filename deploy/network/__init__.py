"""What a network file is made of: YAML with places, its sections, and where the events of a source come from."""
