"""The code in a trial's process: the call of the train function, and the functions it may call."""
