"""A slot as a member of a gang: the ports that it holds, the variables of its trial."""
