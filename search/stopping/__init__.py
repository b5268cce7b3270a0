"""Rules that stop trials early, each by the reports of all trials."""
