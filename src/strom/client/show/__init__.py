"""How tables and rows look: in a terminal and in a notebook."""
