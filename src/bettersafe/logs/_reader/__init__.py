"""Files of any size -> one checked DuckDB relation -> a Dataset, blocks of episodes, or counts.

files         paths, formats, and where a row stands in its file
cells         SQL that reads one cell of any format
columns       the columns of files by role
checks        what can be wrong with a log, and the sentence that says so
relation      all of that together: `open_source`
count_sql     counting by SQL, out of core
count_native  counting sorted logs in one pass, in the kernel
plain_csv     the same for plain CSV
blocks        a log in blocks of whole episodes
exact         sums that do not depend on the order of their terms, and `exact_sql` the same in SQL
tables        tables of features, and `features` the columns of such a log
progress      how far the reading is
"""
