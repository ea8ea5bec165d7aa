"""Logged decisions: reading, counting, merging, describing, discretising.

dataset      Dataset: logged transitions in memory; Objective and Columns: the columns of a file
roles        roles of the columns: required or optional, labels or flags
source       reading files into memory, in blocks of episodes, or as counts
episodes     Episodes: a log on disk, read in blocks of whole episodes
counts       Counts: visits, outcomes and rewards of every pair
counts_file  counts files
merge        merging counts
sharded      counting in shards, on several processes or a Ray cluster
describe     size, coverage, returns and likely problems of a log
labels       order of labels, labels that are nearly the same, actions that leak into the state
discretize   discrete states from continuous features, by k-means
tally        aggregation of equal rows
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
