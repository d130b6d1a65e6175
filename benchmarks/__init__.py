"""Measuring: one file per question, each opening with the figure expected and why.

Run all with ``make bench`` (``ONLY=log``, ``QUICK=1``, ``STRICT=1``). Machines are shared and noisy, so every
question measures a reference in the same run, alternating with what is measured, and reports the ratio of medians.
"""
