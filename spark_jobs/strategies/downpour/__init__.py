"""Training one model out of step, with Keras: `Downpour`."""
