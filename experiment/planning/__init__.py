"""`experiment.plan`: what a search would ask of the cluster."""
