"""Inside a trial's process: calling the train function, and what that may call."""
