"""The search for plans: the planner, its dynamic programme, and the planners that it is compared with."""
