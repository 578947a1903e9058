"""The coordinator: its machine, its API, its memory, its layouts."""
