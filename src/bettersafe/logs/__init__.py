"""Logs of decisions: reading, counting, merging, describing, discretising.

dataset      Dataset: logged transitions in memory; Objective and Columns say what a file's columns are
source       files of a log: into memory, in blocks of episodes, or as counts
episodes     Episodes: a log on disk, read in blocks of whole episodes
counts       Counts: how often each pair was tried, where it led, and what it paid
counts_file  counts as files
merge        counts of several logs as counts of one
sharded      counting in shards, by several processes or a Ray cluster
describe     what a careful person would look at first
discretize   states from measurements, by k-means
tally        rows that are alike, taken together
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
