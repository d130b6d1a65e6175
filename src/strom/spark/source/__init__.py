"""``spark.read`` and ``spark.readStream``.

Read ``source.py`` first, then ``batch_reader.py`` and ``stream_reader.py``; ``reading.py`` is a task at work. Never
imports ``sink``.
"""
