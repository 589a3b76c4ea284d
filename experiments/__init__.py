"""The paper's tables and figures, rebuilt with this library."""
