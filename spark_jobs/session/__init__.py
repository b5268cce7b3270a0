"""The user's SparkSession: the jobs it runs, and what its settings say."""
