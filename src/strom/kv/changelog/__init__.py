"""One batch of changes becomes one batch of the changelog.

Read ``batch_keys.py`` first (what the store knows about each key), then ``changelog.py`` (which records) and
``changelog_batch.py`` (their bytes).
"""
