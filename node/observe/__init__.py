"""What a node shows of itself: accounts, metrics, statistics, and the HTTP server for them."""
