"""A data folder in another place: the paths in its lake, backups of it, and restoring them.

Nothing here talks to a server or needs the lake's libraries. All of it works on folders that nobody else writes to:
those whose lock is held, or copies.
"""
