"""`experiment.plan`: a search's demand on the cluster."""
