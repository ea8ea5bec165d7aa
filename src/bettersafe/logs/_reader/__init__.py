"""Reading log files of any size, through a checked DuckDB relation, into a Dataset, blocks of episodes, or counts.

files         paths, formats, and positions of rows in files
cells         SQL that reads one cell of any format
columns       columns of files by role
checks        checks of a log, and their error messages
relation      `open_source`: the checked relation
count_sql     counting by SQL, out of core
count_native  counting sorted logs in one pass, in the kernel
plain_csv     fast reading of plain CSV, for count_native
blocks        logs in blocks of whole episodes
exact         sums that do not depend on the order of their terms
exact_sql     exact sums in SQL
tables        tables with any columns
features      tables of features with logged decisions
progress      progress of reading
"""
