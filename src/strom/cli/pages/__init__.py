"""The pages of ``docs/`` that are written by the code itself: ``python -m strom.cli.pages.references docs``."""
