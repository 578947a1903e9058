"""Links and the bytes on them."""
