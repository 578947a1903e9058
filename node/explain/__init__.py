"""Why a pattern did or did not fire: a slow walk through it that shares no code with the engine."""
