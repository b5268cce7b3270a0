"""What a search returns: text, table, HTML, picture."""
