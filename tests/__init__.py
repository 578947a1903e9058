"""Behaviour of Headwater, in rooms by capability; ``kit`` holds what several rooms share."""
