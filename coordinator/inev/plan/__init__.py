"""Plans: what runs where, whether they are well formed, how they are described, drawn and rolled out."""
