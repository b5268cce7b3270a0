"""Search spaces, and drawing configurations of them."""
