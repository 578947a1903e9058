"""Push-pull: rare events awaken frequent ones, which stay at their sources until a task pulls them."""
