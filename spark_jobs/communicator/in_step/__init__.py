"""What all members of a gang call in step: all-reduce, broadcast, barrier."""
