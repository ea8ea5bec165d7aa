"""Reading logs: files of any size -> one checked DuckDB relation -> a Dataset or Counts.

files     paths, formats, where a row stands in its file
cells     SQL that reads one cell of any format
raw       the files' columns by role
checks    what can be wrong, and the sentence that says so
source    all of that together: open_source
counting  sufficient statistics by SQL, out of core
"""
