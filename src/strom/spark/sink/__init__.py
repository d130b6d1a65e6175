"""``df.write`` and ``df.writeStream``: staged by tasks, published once by the driver.

Read ``batch_writer.py`` first, then ``task_writer.py`` (one task's part) and ``publishing.py``. Never imports
``source``.
"""
