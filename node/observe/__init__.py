"""What a node shows of itself: accounts, metrics, statistics, and the HTTP server that answers for them."""
