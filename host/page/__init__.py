"""The page: its files, and `service`, the part of it that runs in Pyodide."""
