"""The data folder: who holds it, which format it has, where it lies, and a copy of all of it at one instant."""
