"""Stages on the disk: their files, the room and the open files that they share, how they are sealed and copied.

Read first: ``stage_file.py``; what a bucket does with stages is in ``tablet/stages.py``.
"""
