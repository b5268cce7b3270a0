"""The channel between slots and driver: messages, authentication, transports."""
