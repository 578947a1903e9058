"""Raw data to prepared traces."""
