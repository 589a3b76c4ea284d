"""The paper's tables and figures as experiments; beside the package, not part of it.

``python -m experiments run NAME`` measures rows, and ``python -m experiments report`` builds
tables, figures and pages from them.
"""
