"""The code on the cluster: slots, the channel to the driver, trial processes, devices, storage."""
