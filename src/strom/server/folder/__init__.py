"""The data folder: whose it is, which format it has, where it lies, and a copy of all of it at one instant."""
