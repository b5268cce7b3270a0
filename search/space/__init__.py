"""Search spaces, and configurations drawn from them."""
