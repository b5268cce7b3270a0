"""The Spark jobs that run the slots of a search: requesting, watching and ending them."""
