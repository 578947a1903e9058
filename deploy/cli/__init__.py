"""The subcommands of ``headwater``, one module each."""
