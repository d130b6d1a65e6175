"""How loops over rows become machine code, and where that is kept.

Read ``compile.py`` first: it has the rules for kernels and the words they are written in. Imports nothing of this
package.
"""
