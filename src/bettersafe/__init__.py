"""Better on what you prefer, no worse on anything: policies improved from logged decisions with several objectives.

    data ──> model ──> improve ──> evaluate ──> certify ──> report

The names that most people need are here; all others are in the folder of what they do: mdp, logs, posterior, evaluation, methods,
certificate, runs, tasks, report, envs, studies. Names and folders are imported when they are first used, so that
``import bettersafe`` is quick.
"""

import lazy_loader

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("bettersafe")
    return _load(name)
