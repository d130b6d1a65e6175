"""``spark.read`` and ``spark.readStream``.

Read ``source.py`` first, then ``batch_reader.py`` and ``stream_reader.py``; ``task_reader.py`` is one task's part.
Never imports ``sink``.
"""
