"""The headwater command and the files it reads."""
