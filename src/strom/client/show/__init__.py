"""How tables and rows look: in a terminal, in a notebook, in a data frame of another library."""
