"""Better on what you prefer, no worse on anything: policies improved from logged decisions with several objectives.

    data ──> model ──> improve ──> evaluate ──> certify ──> report

Names are imported when they are first used, so that ``import bettersafe`` is quick.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
