"""``df.write`` and ``df.writeStream``: staged by tasks, published once by the driver.

Read ``batch_writer.py`` first, then ``writing.py`` (a task at work) and ``publishing.py``. Never imports ``source``.
"""
