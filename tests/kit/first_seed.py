"""Where random tests begin: at the same seed in every run, so that a change is judged by what it changes.

HEADWATER_FUZZ_SEED gives another one, or says ``new`` for one that was never tried; ``scripts/fuzz`` looks for new
failures all the time.
"""

from __future__ import annotations

import os
import secrets

FIRST_SEED = 77_000_000


def first_seed() -> int:
    asked = os.environ.get("HEADWATER_FUZZ_SEED", "")
    if asked == "new":
        return secrets.randbelow(10**9)
    return int(asked) if asked else FIRST_SEED
