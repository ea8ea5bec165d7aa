"""Which experiments the Garnet study has."""

from __future__ import annotations

import pytest

from bettersafe.errors import ParameterError
from bettersafe.studies.catalogue import make_study
from bettersafe.studies.garnet.plan import garnet_study


def test_wrong_options():
    with pytest.raises(ParameterError, match="at least 1 world"):
        garnet_study(worlds=0)
    with pytest.raises(ParameterError, match="delta"):
        garnet_study(delta=1.5)
    with pytest.raises(ParameterError, match="`cmdps` does not belong"):
        make_study("garnet/bopt", cmdps=3)
