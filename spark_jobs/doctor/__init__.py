"""What an executor finds out about itself."""
