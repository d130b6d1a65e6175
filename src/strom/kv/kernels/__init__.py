"""How loops over rows become machine code, and where that code is kept.

Read ``compile.py`` first: it has the rules for kernels and the words they are written in. Imports no other room of this
package.
"""
