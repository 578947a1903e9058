"""Will prepare traces and analyse what runs collected, in bulk."""
