"""The report: one self-contained HTML page about a run, for people who never saw the tool.

page         the page, as text or as a file
objectives   every objective: estimates, bounds and beliefs
trade_off    candidates in pairs of objectives
differences  where the policy differs from the baseline
hazards      how often an unseen harm would have to occur to overturn the verdict
limits       what the data covers and what is not known
charts       numbers to SVG
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
