"""A slot's zygote: the process that forks its trials, and where it comes from."""
