"""How plans are found: the planner, its dynamic programme, and the planners it is measured against."""
