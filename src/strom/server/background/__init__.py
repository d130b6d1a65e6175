"""What a server does without being asked: group commit, disk space, retention, partitions by time.

Each is a small loop around a decision made elsewhere. A failed round is logged and the next round tries again; only a
failed sync is final, because then nobody knows what the disk holds.
"""
