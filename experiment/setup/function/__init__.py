"""The train function: checks of it, the modules that it imports, hashes of its source."""
