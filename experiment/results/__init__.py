"""Results of searches: text, tables, HTML, plots."""
