"""The connections between the members of a gang: collectives, published vectors, shared vectors."""
