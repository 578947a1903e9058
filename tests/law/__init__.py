"""The law on random networks: generators, the fuzzers, and the seeds that once failed."""
