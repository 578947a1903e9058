"""Plans: what runs where, whether they are well formed, how they are described and turned into layouts."""
